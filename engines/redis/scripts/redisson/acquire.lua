-- SPDX-License-Identifier: Apache-2.0
--
-- acquire, in the layout `redisson`.
--
-- KEYS, ARGV 1-7: as in common.lua. ARGV 8 lease ms, 9 how long to wait at most, ms (0: don't
-- wait), 10 how often the owner holds the lock already, 11 permits, 12 capacity (0: as set), 13...
-- ids of permits.
-- Replies, as in the layout `pawl`: GRANTED tag token 1 ms now | QUEUED tag 0 left 0 now (listen on
-- the channel and ask again) | BUSY tag left 0 now | STATE tag | INVAL tag | GONE tag (the hold
-- that was to be re-entered has ended).
--#include common.lua

local ALIVE_MS = 10000 -- waiters ask again every 4.5 s at least (redisson.c)
local lease, wait, count = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local permits, capacity = tonumber(ARGV[11]), tonumber(ARGV[12])

local function granted()
    local token = mode == 'l' and 0 or call('INCR', TOKEN)
    return {'GRANTED', tag, token, 1, lease, now}
end

local function busy(left)
    if wait == 0 then
        return {'BUSY', tag, left, 0, now}
    end
    return {'QUEUED', tag, 0, left, 0, now}
end

if not of_type() then
    return {'STATE', tag}
end

-- ---- locks --------------------------------------------------------------------------------------

-- A request whose answer was lost is granted again: the lease then counts from now on.
local function enter_plain()
    call('HSET', N, field, count + 1)
    at_least(N, lease)
    if how then
        at_least(WRITES, lease)
    end
    return granted()
end

local function plain()
    if mine() then
        return enter_plain()
    elseif count > 0 then
        return {'GONE', tag}
    elseif kind == 'none' then
        return enter_plain()
    end
    return busy(call('PTTL', N))
end

local function fair()
    local head = clean()
    if mine() then
        return enter_plain()
    elseif count > 0 then
        return {'GONE', tag}
    end
    if kind == 'none' and (not head or head == owner) then
        if head then
            call('LPOP', QUEUE)
            call('ZREM', DEADLINES, owner)
            call('ZREM', WAITING, owner)
        end
        for _, who in ipairs(call('ZRANGE', DEADLINES, 0, -1)) do
            call('ZINCRBY', DEADLINES, -wait, who)
        end
        return enter_plain()
    end
    if kind == 'none' and turn(head) then
        tell(0, 'redisson_lock__channel:' .. base .. ':' .. head)
    end
    if wait == 0 then
        return busy(call('PTTL', N))
    end
    call('ZADD', WAITING, now + ALIVE_MS, owner)
    at_least(WAITING, 60 * ALIVE_MS)
    local deadline = call('ZSCORE', DEADLINES, owner)
    if deadline then
        local alive = now + math.min(wait, 60000)
        if tonumber(deadline) < alive then
            call('ZADD', DEADLINES, alive, owner) -- the waiter lives; others would remove it
        end
        return busy(math.max(0, call('PTTL', N)))
    end
    local last = call('LINDEX', QUEUE, -1)
    deadline = last and last ~= owner and call('ZSCORE', DEADLINES, last)
    local left = deadline and deadline - now or math.max(0, call('PTTL', N))
    if call('ZADD', DEADLINES, left + wait + now, owner) == 1 then
        call('RPUSH', QUEUE, owner)
    end
    return busy(math.max(0, call('PTTL', N)))
end

-- Whether this owner holds N exclusively, and may therefore read, too.
local function downgrades()
    local holds = not how and call('HGET', N, owner)
    if holds then -- a plain or fair lock becomes a write lock
        call('HSET', N, 'mode', 'write', owner .. ':write', holds)
        call('HDEL', N, owner)
    elseif how ~= 'write' or call('HEXISTS', N, owner .. ':write') == 0 then
        return false
    end
    if call('EXISTS', WRITES) == 0 then
        call('SET', WRITES, 1, 'PX', math.max(1, call('PTTL', N)))
    end
    return true
end

-- Pawl treats all holds of one owner as one hold: each lasts as long as the last hold.
local function read()
    if count > 0 and not mine() then
        return {'GONE', tag}
    end
    if kind == 'none' then
        call('HSET', N, 'mode', 'read')
    elseif how ~= 'read' and not downgrades() then
        return busy(call('PTTL', N))
    end
    local ms = lease
    for i = 1, count do
        at_least(hold_key(owner, i), lease)
        ms = math.max(ms, call('PTTL', hold_key(owner, i)))
    end
    call('HSET', N, owner, count + 1)
    call('SET', hold_key(owner, count + 1), 1, 'PX', ms)
    at_least(N, ms)
    return granted()
end

-- Redisson adds the leases of all entries up: a lock that was entered often would stay taken for long
-- after its holder has died. Here the sum ends at two leases.
local function write()
    if mine() then
        if tonumber(call('HGET', N, field)) <= count then
            local left = call('PTTL', N)
            call('PEXPIRE', N, math.max(left, math.min(left + lease, 2 * lease)))
        end
        return enter_plain()
    elseif count > 0 then
        return {'GONE', tag}
    elseif kind ~= 'none' then
        return busy(call('PTTL', N))
    end
    call('HSET', N, 'mode', 'write')
    call('HSET', N, field, 1)
    call('PEXPIRE', N, lease)
    return granted()
end

-- ---- semaphores and latches ---------------------------------------------------------------------

-- A semaphore without a value is set by the first acquire that has a capacity.
local function free_permits()
    local free = call('GET', N)
    if not free and capacity > 0 then
        call('SET', N, capacity)
        tell(capacity)
        free = capacity
    end
    return free and tonumber(free)
end

-- If an earlier answer was lost, the permits are leased anew. If some of the permits have expired
-- and were given back since then, the rest is given back, too, and all permits are requested anew.
local function asked_before()
    local have = {}
    for i = 13, 12 + permits do
        if call('ZSCORE', PERMITS, ARGV[i]) then
            have[#have + 1] = ARGV[i]
        end
    end
    for _, id in ipairs(have) do
        if #have == permits then
            call('ZADD', PERMITS, now + lease, id)
        else
            call('ZREM', PERMITS, id)
            call('INCRBY', N, 1)
        end
    end
    return #have == permits
end

local function leased_permits()
    if asked_before() then
        return granted()
    end
    give_back(permits)
    local free = free_permits()
    if not free then
        return {'STATE', tag}
    elseif permits > free + call('ZCARD', PERMITS) then
        return {'INVAL', tag}
    elseif free >= permits then
        call('DECRBY', N, permits)
        for i = 13, 12 + permits do
            call('ZADD', PERMITS, now + lease, ARGV[i])
        end
        local ttl = call('PTTL', N)
        if ttl > 0 then
            call('PEXPIRE', PERMITS, ttl)
        end
        return granted()
    end
    local first = call('ZRANGE', PERMITS, 0, 0, 'WITHSCORES')
    return busy(first[2] and first[2] ~= NEVER and math.max(0, first[2] - now) or -1)
end

local function plain_permits()
    if tonumber(call('GET', RECEIPT) or 0) > 0 then -- the answer was lost
        call('PEXPIRE', RECEIPT, keep_ms(lease))
        return granted()
    end
    local free = free_permits()
    if not free then
        return {'STATE', tag}
    elseif free < permits and capacity > 0 and permits > capacity then
        return {'INVAL', tag} -- the capacity is not in the key, only in the request
    elseif free < permits then
        return busy(-1)
    end
    call('DECRBY', N, permits)
    call('SET', RECEIPT, permits, 'PX', keep_ms(lease))
    return granted()
end

local function await_latch()
    return kind == 'none' and granted() or busy(-1)
end

local act = {x = plain, f = fair, r = read, w = write, p = leased_permits, c = plain_permits,
             l = await_latch}
return act[mode]()
