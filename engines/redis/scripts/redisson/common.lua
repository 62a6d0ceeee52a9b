-- SPDX-License-Identifier: Apache-2.0
--
-- Names and helpers of the layout `redisson`: the keys of Redisson 3.x and 4.x, and three keys that
-- Redisson does not have (docs/redisson.md): the token, WAITING and WRITES.
--
-- WAITING, a sorted set, has the time until which a waiter of Pawl in a fair lock's queue counts as
-- alive: the waiter asks again long before. Redisson's own deadline of a waiter is minutes away.
-- When the lock is free and the waiter's turn has come, the waiter has only CLAIM_MS to ask: a
-- waiter that was killed or stopped delays the next waiters by CLAIM_MS at most.
--
-- WRITES exists while an owner both writes and reads. The hash N then lasts as long as the longer
-- of both leases, and WRITES, named like the key of a read hold, lasts as long as the writer's
-- lease. So N can be shortened when the reader has left, but never below the writer's lease.
--
-- If the owner of an exclusive lock of any kind also reads, the lock is stored as a write lock:
-- `how` says how N is stored now ("read", "write", or false: a plain or fair lock, or none).
--
-- KEYS: 1 N, 2 token, 3 queue of the fair lock, 4 deadlines of that queue, 5 expiries of permits.
-- ARGV: 1 tag, echoed, 2 mode: x mutex, f fair, r read, w write, p permits with leases, c counting
-- semaphore, l latch; 3 owner, 4 PUBLISH or SPUBLISH, 5 channel, 6 the beginning of N's helper
-- keys, 7 key of the receipt. Each script defines the rest.
--
-- A request may be repeated: counts are set, not raised, and requests without an owner (mode c,
-- latch) leave a receipt under the name of Redisson's own unlock receipts. A latch's receipt lasts
-- a minute. In mode c the receipt has the number of the owner's permits, and outlasts the lease: a
-- release of permits that were never granted, or were released already, changes nothing.
local call, match, format = redis.call, string.match, string.format
local N, TOKEN, QUEUE, DEADLINES, PERMITS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local tag, mode, owner, publish, channel, base, RECEIPT =
    ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local NEVER = '922337203685477'
local CLAIM_MS = 2000
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local kind = call('TYPE', N).ok
local how = kind == 'hash' and call('HGET', N, 'mode')
local field = (mode == 'w' or how and mode ~= 'r') and owner .. ':write' or owner

-- A user that may not send sharded messages sends a plain one. If the user may send neither, the
-- script fails with the missing right; the changes made before stay.
local function tell(message, to)
    if type(redis.pcall(publish, to or channel, message)) == 'table' then
        call('PUBLISH', to or channel, message)
    end
end

-- Whether this owner holds N in this mode. The field of a plain lock and the field of a read
-- hold have the same name.
local function mine()
    if kind ~= 'hash' or mode == 'r' and not how or mode == 'w' and how ~= 'write' or
        (mode == 'x' or mode == 'f') and how == 'read' then
        return false
    end
    return call('HEXISTS', N, field) == 1
end

-- Extend a lease; never shorten a lease.
local function at_least(key, ms)
    if call('PTTL', key) < ms then
        call('PEXPIRE', key, ms)
    end
end

-- Whether N has the type that this mode uses.
local function of_type()
    local wanted = (mode == 'p' or mode == 'c' or mode == 'l') and 'string' or 'hash'
    return kind == 'none' or kind == wanted
end

local function hold_key(who, i)
    return format('%s:%s:rwlock_timeout:%d', base, who, i)
end

local WAITING = 'redisson_lock_waiting:' .. base
local WRITES = hold_key(owner .. ':write', 1)

-- Remove dead waiters of a fair lock: Pawl's waiters anywhere in the queue; other waiters, as in
-- Redisson, at the head when their deadline has passed. Returns the head of the queue.
local function clean()
    for _, who in ipairs(call('ZRANGEBYSCORE', WAITING, '-inf', now)) do
        call('ZREM', WAITING, who)
        call('ZREM', DEADLINES, who)
        call('LREM', QUEUE, 0, who)
    end
    while true do
        local head = call('LINDEX', QUEUE, 0)
        local deadline = head and call('ZSCORE', DEADLINES, head)
        if not deadline or tonumber(deadline) > now then
            return head
        end
        call('ZREM', DEADLINES, head)
        call('ZREM', WAITING, head)
        call('LPOP', QUEUE)
    end
end

-- The lock is free, and `head` is first in the queue. Returns whether a claim of `head` begins now:
-- `head` is a waiter of Pawl without a claim.
local function turn(head)
    local alive = call('ZSCORE', WAITING, head)
    if not alive or tonumber(alive) <= now + CLAIM_MS then
        return false
    end
    call('ZADD', WAITING, now + CLAIM_MS, head)
    return true
end

-- Give back at most n permits with expired leases.
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

-- The lock N is free, or (lingers) ends sooner than the waiters know: notify the waiters of every
-- kind. Redisson sends messages only on the channel of the released lock's own kind.
local function wake(lingers)
    local head = call('LINDEX', QUEUE, 0)
    if head then
        if not lingers then
            turn(head)
        end
        tell(0, 'redisson_lock__channel:' .. base .. ':' .. head)
    end
    tell(0, 'redisson_lock__channel:' .. base)
    tell(mode == 'r' and 0 or 1, 'redisson_rwlock:' .. base)
end

-- Mode c: how long a receipt is kept. A release may follow at the end of the lease, and be retried
-- for the length of another lease.
local function keep_ms(lease)
    return format('%.0f', 2 * lease + 60000)
end
