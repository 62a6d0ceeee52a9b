-- SPDX-License-Identifier: Apache-2.0
--
-- renew, in the layout `redisson`: a batch. A lease is never shortened, and never made anew.
--
-- KEYS: for each item N and, for permits, their expiries (else N again). ARGV 1 nothing, then for
-- each item: mode, tag, field of the hash, what keys of N begin with, lease ms, number of ids, ids.
-- Reply: now, then for each item its tag (renewed) or "" (it holds nothing).
local call, format = redis.call, string.format
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local reply = {now}

local function last(key, ms)
    if call('PTTL', key) < ms then
        call('PEXPIRE', key, ms)
    end
end

local function renew_lock(N, mode, field, base, lease)
    local count = call('TYPE', N).ok == 'hash' and tonumber(call('HGET', N, field) or 0) or 0
    if count == 0 then
        return false
    end
    if mode == 'r' then
        local alive = false
        for i = 1, count do
            local key = format('%s:%s:rwlock_timeout:%d', base, field, i)
            alive = call('EXISTS', key) == 1 or alive
        end
        if not alive then
            return false
        end
        for i = 1, count do
            local key = format('%s:%s:rwlock_timeout:%d', base, field, i)
            if call('EXISTS', key) == 1 then
                last(key, lease)
            end
        end
    end
    last(N, lease)
    return true
end

local function renew_permits(PERMITS, lease, from, to)
    for i = from, to do
        local score = call('ZSCORE', PERMITS, ARGV[i])
        if not score or tonumber(score) <= now then
            return false
        end
    end
    for i = from, to do
        if tonumber(call('ZSCORE', PERMITS, ARGV[i])) < now + lease then
            call('ZADD', PERMITS, now + lease, ARGV[i])
        end
    end
    return true
end

local at = 2
for i = 1, #KEYS, 2 do
    local mode, tag, field, base, lease, n =
        ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], tonumber(ARGV[at + 4]),
        tonumber(ARGV[at + 5])
    local held
    if mode == 'p' then
        held = renew_permits(KEYS[i + 1], lease, at + 6, at + 5 + n)
    else
        held = renew_lock(KEYS[i], mode, field, base, lease)
    end
    reply[#reply + 1] = held and tag or ''
    at = at + 6 + n
end
return reply
