-- SPDX-License-Identifier: Apache-2.0
--
-- renew, in the layout `redisson`: a batch. A lease is never shortened, and an ended lease is never
-- restored.
--
-- KEYS: for each item N and the expiries of N's permits (used in mode p). ARGV 1 unused, then for
-- each item: mode, tag, owner, beginning of N's helper keys, lease ms, number of ids, ids (mode c:
-- the key of the receipt).
-- Reply: now, then for each item the tag (renewed) or "" (not held).
local call, format = redis.call, string.format
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local reply = {now}

local function last(key, ms)
    if call('PTTL', key) < ms then
        call('PEXPIRE', key, format('%.0f', ms))
    end
end

local function hold_key(base, who, i)
    return format('%s:%s:rwlock_timeout:%d', base, who, i)
end

-- common.lua describes how N is stored.
local function renew_read(N, owner, base, lease)
    local count = call('HEXISTS', N, 'mode') == 1 and tonumber(call('HGET', N, owner) or 0) or 0
    local alive = false
    for i = 1, count do
        alive = call('EXISTS', hold_key(base, owner, i)) == 1 or alive
    end
    for i = 1, alive and count or 0 do
        last(hold_key(base, owner, i), lease)
    end
    return alive
end

local function renew_exclusive(N, mode, owner, base, lease)
    local how = call('HGET', N, 'mode')
    if how == 'read' or not how and mode == 'w' or
        call('HEXISTS', N, how and owner .. ':write' or owner) == 0 then
        return false
    end
    if how then
        last(hold_key(base, owner .. ':write', 1), lease) -- WRITES may not exist
    end
    return true
end

local function renew_lock(N, mode, owner, base, lease)
    local held = false
    if call('TYPE', N).ok == 'hash' then
        held = mode == 'r' and renew_read(N, owner, base, lease) or
               mode ~= 'r' and renew_exclusive(N, mode, owner, base, lease)
    end
    if held then
        last(N, lease)
    end
    return held
end

-- A partial release gives back permits from the end of the list, perhaps after this renewal was
-- sent: the last permits of the list may be missing.
local function renew_permits(PERMITS, lease, from, to)
    while to > from and not call('ZSCORE', PERMITS, ARGV[to]) do
        to = to - 1
    end
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

-- These permits have neither owner nor lease, but a receipt (common.lua).
local function renew_plain(N, RECEIPT, lease)
    if call('TYPE', N).ok ~= 'string' or tonumber(call('GET', RECEIPT) or 0) == 0 then
        return false
    end
    last(RECEIPT, 2 * lease + 60000)
    return true
end

local at = 2
for i = 1, #KEYS, 2 do
    local mode, tag, owner, base, lease, n =
        ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], tonumber(ARGV[at + 4]),
        tonumber(ARGV[at + 5])
    local held
    if mode == 'p' then
        held = renew_permits(KEYS[i + 1], lease, at + 6, at + 5 + n)
    elseif mode == 'c' then
        held = renew_plain(KEYS[i], ARGV[at + 6], lease)
    else
        held = renew_lock(KEYS[i], mode, owner, base, lease)
    end
    reply[#reply + 1] = held and tag or ''
    at = at + 6 + n
end
return reply
