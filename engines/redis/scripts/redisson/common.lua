-- SPDX-License-Identifier: Apache-2.0
--
-- Names and helpers of the layout `redisson`: what Redisson 3.x and 4.x write, and no more than one
-- key besides, the token (docs/redisson.md).
--
-- KEYS: 1 N, 2 token, 3 queue of the fair lock, 4 its deadlines, 5 expiries of permits.
-- ARGV: 1 tag, echoed, 2 mode: x mutex, f fair, r read, w write, p permits with leases, c counting
-- semaphore, l latch; 3 owner, 4 PUBLISH or SPUBLISH, 5 channel, 6 what keys of N begin with, 7 key
-- of the receipt. The rest is each script's own.
--
-- A request may be repeated: counts are set, not raised, and what has no owner (mode c, latch) leaves
-- a receipt for a minute, under the name of Redisson's own unlock receipts.
local call, match, format = redis.call, string.match, string.format
local N, TOKEN, QUEUE, DEADLINES, PERMITS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local tag, mode, owner, publish, channel, base, RECEIPT =
    ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local NEVER = '922337203685477'
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local field = mode == 'w' and owner .. ':write' or owner
local kind = call('TYPE', N).ok

-- A spin lock has no channel: nobody listens. Who may not send a sharded message sends a plain one;
-- who may send neither has all the same done what is told of.
local function tell(message, to)
    if channel ~= '' and type(redis.pcall(publish, to or channel, message)) == 'table' then
        redis.pcall('PUBLISH', to or channel, message)
    end
end

-- What N holds must be what this mode keeps there.
local function of_type()
    local wanted = (mode == 'p' or mode == 'c' or mode == 'l') and 'string' or 'hash'
    return kind == 'none' or kind == wanted
end

local function hold_key(who, i)
    return format('%s:%s:rwlock_timeout:%d', base, who, i)
end

-- Waiters of a fair lock whose deadline is over; only the head is ever looked at.
local function clean()
    while true do
        local head = call('LINDEX', QUEUE, 0)
        local deadline = head and call('ZSCORE', DEADLINES, head)
        if not deadline or tonumber(deadline) > now then
            return head
        end
        call('ZREM', DEADLINES, head)
        call('LPOP', QUEUE)
    end
end

-- Permits whose lease is over go back, at most n of them.
local function give_back(n)
    local ended = call('ZRANGEBYSCORE', PERMITS, 0, now, 'LIMIT', 0, n)
    if #ended > 0 then
        for _, id in ipairs(ended) do
            call('ZREM', PERMITS, id)
        end
        local free = call('INCRBY', N, #ended)
        if free > 0 then
            tell(free)
        end
    end
end

-- A full release of a lock in mode x, f or w by whoever: the next one is woken as Java expects.
local function wake()
    if mode == 'f' then
        local head = call('LINDEX', QUEUE, 0)
        if head then
            tell(0, channel .. ':' .. head)
        end
    else
        tell(mode == 'w' and 1 or 0)
    end
end
