-- SPDX-License-Identifier: Apache-2.0
--
-- release, in the layout `redisson`. Also what ends a wait (ARGV 8 "leave"): a grant that came
-- meanwhile goes back, and the waiter leaves a fair lock's queue.
--
-- KEYS, ARGV 1-7: as in common.lua. ARGV 8 "" or "leave", 9 how often it stays held (0: not at all;
-- permits: how many), 10 lease ms, 11 permits held (mode c), 12 wait ms of a fair lock's waiter,
-- 13... ids of the permits to give back.
-- Replies: OK tag now | NOTHELD tag now.
--
-- Where Redisson lets things happen that harm others, this does not: an expired fair lock is not
-- "released" for somebody who does not hold it, and who leaves the queue of a free lock wakes the
-- next one.
--#include common.lua

local leaves, keep, lease = ARGV[8] == 'leave', tonumber(ARGV[9]), tonumber(ARGV[10])

local function ended(held)
    return {held and 'OK' or 'NOTHELD', tag, now}
end

local function plain()
    if call('HEXISTS', N, field) == 0 then
        return ended(false)
    elseif keep > 0 then
        call('HSET', N, field, keep)
        call('PEXPIRE', N, lease)
    else
        call('DEL', N)
        wake()
    end
    return ended(true)
end

local function leave_queue()
    local wait, behind = tonumber(ARGV[12]), false
    for _, who in ipairs(call('LRANGE', QUEUE, 0, -1)) do
        if behind then
            call('ZINCRBY', DEADLINES, -wait, who)
        end
        behind = behind or who == owner
    end
    call('ZREM', DEADLINES, owner)
    call('LREM', QUEUE, 0, owner)
    if behind and kind == 'none' then
        wake()
    end
end

local function fair()
    clean()
    if leaves then
        leave_queue()
    end
    return plain()
end

-- The longest of the leases of those who still hold it; 0: none.
local function longest()
    local most, all = 0, call('HGETALL', N)
    for i = 1, #all, 2 do
        for k = 1, tonumber(all[i + 1]) or 0 do
            most = math.max(most, call('PTTL', hold_key(all[i], k)))
        end
    end
    return most
end

local function read()
    local count = tonumber(call('HGET', N, owner) or 0)
    if count == 0 then
        return ended(false)
    end
    for i = keep + 1, count do
        call('DEL', hold_key(owner, i))
    end
    if keep > 0 then
        call('HSET', N, owner, keep)
    else
        call('HDEL', N, owner)
    end
    if call('HLEN', N) > 1 then
        local most = longest()
        if most > 0 then
            call('PEXPIRE', N, most)
        end
        if most > 0 or call('HGET', N, 'mode') == 'write' then
            return ended(true)
        end
    end
    call('DEL', N)
    tell(0)
    return ended(true)
end

local function write()
    if call('HGET', N, 'mode') ~= 'write' or call('HEXISTS', N, field) == 0 then
        return ended(false)
    elseif keep > 0 then
        call('HSET', N, field, keep)
        call('PEXPIRE', N, lease)
        return ended(true)
    end
    call('HDEL', N, field)
    if call('HLEN', N) == 1 then
        call('DEL', N)
        tell(1)
    else
        call('HSET', N, 'mode', 'read')
        tell(1) -- readers of others may come in now; Redisson leaves them waiting
    end
    return ended(true)
end

local function leased_permits()
    local n, live = 0, false
    for i = 13, #ARGV do
        local score = call('ZSCORE', PERMITS, ARGV[i])
        if score then
            call('ZREM', PERMITS, ARGV[i])
            n, live = n + 1, live or tonumber(score) > now
        end
    end
    if n > 0 then -- one: how many are free; several: how many came back
        local free = call('INCRBY', N, n)
        tell(#ARGV > 13 and n or free)
    end
    return ended(live)
end

local function plain_permits()
    local n = tonumber(ARGV[11]) - keep
    if leaves then
        if call('DEL', RECEIPT) == 0 then
            return ended(false)
        end
    elseif call('SET', RECEIPT, 1, 'PX', 60000, 'NX') == false then
        return ended(true)
    end
    tell(call('INCRBY', N, n))
    return ended(true)
end

if not of_type() or mode == 'l' then
    return ended(false)
end
local how = {x = plain, f = fair, r = read, w = write, p = leased_permits, c = plain_permits}
return how[mode]()
