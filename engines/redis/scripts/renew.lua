-- SPDX-License-Identifier: Apache-2.0
--
-- renew: make leases last longer, a batch at a time.
--
-- ARGV: 1 keys for each item (1 or 3), then for each item: owner, lease ms. KEYS: for each item K,
-- or K, {K}:rec, {K}:hold.
-- Reply: now, then for each item the owner (renewed), "" (not held) or "+" (the grant is one of
-- several in HOLD: ask with 3 keys). A lease is never shortened, and an ended lease is never
-- restored. The lease of K is always written, so that a WAIT after this script covers the renewal.
-- Works on a full server: the first write is a PEXPIREAT.
local call, sub = redis.call, string.sub
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local step = tonumber(ARGV[1])
local reply = {now}

local function keep(key, at)
    local ttl = call('PTTL', key)
    if ttl >= 0 and now + ttl < at then
        call('PEXPIREAT', key, at)
    end
end

for i = 2, #ARGV, 2 do
    local owner, lease = ARGV[i], math.min(tonumber(ARGV[i + 1]), 1e14)
    local at = (i / 2 - 1) * step
    local K, REC, HOLD = KEYS[at + 1], KEYS[at + 2], KEYS[at + 3]
    local value = redis.pcall('GET', K)
    local text = value
    --#include allowed.lua
    local mine = 'pawl x ' .. owner .. ' '
    local answer = ''

    if type(value) ~= 'string' or not (lease > 0) then
        answer = ''
    elseif sub(value, 1, #mine) == mine then
        call('PEXPIREAT', K, now + math.max(call('PTTL', K), lease))
        answer = owner
    elseif sub(value, 1, 6) == 'pawl m' or sub(value, 1, 6) == 'pawl p' then
        local ends = step == 3 and tonumber(call('ZSCORE', HOLD, owner) or 0)
        if not ends then
            answer = '+'
        elseif ends > now then
            call('PEXPIREAT', K, now + math.max(call('PTTL', K), lease))
            if ends < now + lease then
                keep(HOLD, now + lease + 1000)
                keep(REC, now + lease + 1000)
                call('ZADD', HOLD, 'XX', now + lease, owner)
            end
            answer = owner
        end
    end
    reply[#reply + 1] = answer
end
return reply
