-- SPDX-License-Identifier: Apache-2.0
--
-- release, in the layout `redisson`. Also ends a wait (ARGV 8 "leave"): a grant that was made
-- meanwhile is given back, and the waiter leaves a fair lock's queue.
--
-- KEYS, ARGV 1-7: as in common.lua. ARGV 8 "" or "leave", 9 how many holds remain (0: none;
-- permits: how many permits remain), 10 lease ms that the remaining holds need at least, 11 for
-- "leave": wait ms of a fair lock's waiter; else linger ms, 12... ids of permits with leases: the
-- first permit that remains, if permits remain, and the permits to give back.
-- Replies: OK tag now | NOTHELD tag now.
--
-- Two faults of Redisson that harm others are avoided: an expired fair lock is not "released" for
-- an owner that does not hold the lock, and a waiter that leaves the queue of a free lock wakes the
-- next waiter.
--#include common.lua

local leaves, keep, lease = ARGV[8] == 'leave', tonumber(ARGV[9]), tonumber(ARGV[10])

local function ended(held)
    return {held and 'OK' or 'NOTHELD', tag, now}
end

-- The longest lease of the remaining holds, ms; 0: there are none.
local function longest()
    local most, all = 0, call('HGETALL', N)
    for i = 1, #all, 2 do
        for k = 1, tonumber(all[i + 1]) or 0 do
            most = math.max(most, call('PTTL', hold_key(all[i], k)))
        end
    end
    return most
end

local function free()
    call('DEL', N)
    wake()
    return ended(true)
end

-- How long the released lock lingers, ms.
local function linger()
    return not leaves and tonumber(ARGV[11]) or 0
end

local function plain()
    if not mine() then
        return ended(false)
    elseif keep > 0 then
        call('HSET', N, field, keep)
        at_least(N, lease)
    elseif linger() > 0 then
        call('PEXPIRE', N, linger())
        wake(true)
    else
        return free()
    end
    return ended(true)
end

local function drop_read_holds(count)
    for i = keep + 1, count do
        call('DEL', hold_key(owner, i))
    end
    if keep > 0 then
        call('HSET', N, owner, keep)
    else
        call('HDEL', N, owner)
    end
end

local function read()
    if not mine() then
        return ended(false)
    elseif keep == 0 and linger() > 0 then
        for i = 1, tonumber(call('HGET', N, owner)) do
            call('PEXPIRE', hold_key(owner, i), linger())
        end
    else
        drop_read_holds(tonumber(call('HGET', N, owner)))
    end
    if how == 'write' and call('EXISTS', WRITES) == 0 then
        return ended(true) -- the writer's lease is not known: N stays as it is
    end
    local most = call('HLEN', N) > 1 and longest() or 0
    if most == 0 then
        return free()
    end
    call('PEXPIRE', N, most)
    if linger() > 0 then
        wake(true)
    end
    return ended(true)
end

local function write()
    if not mine() then
        return ended(false)
    elseif keep > 0 then
        call('HSET', N, field, keep)
        call('PEXPIRE', N, math.max(lease, longest(), leaves and call('PTTL', N) or 0))
        return ended(true)
    elseif linger() > 0 then
        call('PEXPIRE', WRITES, linger())
        call('PEXPIRE', N, math.max(linger(), longest()))
        wake(true)
        return ended(true)
    end
    call('HDEL', N, field)
    call('DEL', WRITES)
    local most = call('HLEN', N) > 1 and longest() or 0
    if most == 0 then
        return free()
    end
    call('HSET', N, 'mode', 'read')
    call('PEXPIRE', N, most)
    tell(1, 'redisson_rwlock:' .. base) -- readers can enter now; Redisson does not notify readers
    return ended(true)
end

local function leave_queue()
    local wait, behind, head = tonumber(ARGV[11]), false, call('LINDEX', QUEUE, 0)
    for _, who in ipairs(call('LRANGE', QUEUE, 0, -1)) do
        if behind then
            call('ZINCRBY', DEADLINES, -wait, who)
        end
        behind = behind or who == owner
    end
    call('ZREM', DEADLINES, owner)
    call('ZREM', WAITING, owner)
    call('LREM', QUEUE, 0, owner)
    if behind and kind == 'none' then
        wake()
    elseif behind and head == owner then -- the next waiter may not know how long the lease is now
        tell(0, 'redisson_lock__channel:' .. base .. ':' .. call('LINDEX', QUEUE, 0))
    end
end

local function fair()
    clean()
    if leaves then
        leave_queue()
    end
    return how and write() or plain()
end

-- If permits remain, the owner still has its permits as long as the first of them is there: a
-- partial release whose answer was lost is repeated, and finds nothing to give back.
local function leased_permits()
    local n, live, first = 0, false, 12
    if keep > 0 then
        first = 13
        live = tonumber(call('ZSCORE', PERMITS, ARGV[12]) or 0) > now
    end
    for i = first, #ARGV do
        local score = call('ZSCORE', PERMITS, ARGV[i])
        if score then
            call('ZREM', PERMITS, ARGV[i])
            n, live = n + 1, live or keep == 0 and tonumber(score) > now
        end
    end
    if n > 0 then -- the message has the number of free permits, or (several ids) of returned ones
        local free = call('INCRBY', N, n)
        tell(#ARGV > first and n or free)
    end
    return ended(live)
end

local function plain_permits()
    local have = tonumber(call('GET', RECEIPT) or -1)
    if kind == 'none' or have < 0 then -- the semaphore was deleted; or the permits never granted
        return ended(false)
    elseif have <= keep then -- the permits were released already
        return ended(not leaves)
    end
    call('SET', RECEIPT, keep, 'PX', keep_ms(keep > 0 and lease or 0))
    tell(call('INCRBY', N, have - keep))
    return ended(true)
end

if not of_type() or mode == 'l' then
    return ended(false)
end
local act = {x = how and write or plain, f = fair, r = read, w = write, p = leased_permits,
             c = plain_permits}
return act[mode]()
