-- SPDX-License-Identifier: Apache-2.0
--
-- release: end the owner's grant and pass the lock on.
--
-- KEYS: as in rules.lua. ARGV: 1 owner, 2 permits to keep (0: none), 3 linger ms (0: end now).
-- Replies: OK owner now | NOTHELD owner now. Works on a full server.
--#include head.lua

local owner = ARGV[1]
local mark = 'pawl x ' .. owner .. ' '
local text = redis.pcall('GET', K)
local first, records, passed, heard

-- The usual cases: nobody waits; or PASS to a front waiter that wants K exclusively and receives
-- the message, if no waiter is left in the queue or another waiter is the watcher.
if ARGV[2] == '0' and ARGV[3] == '0' and type(text) == 'string' and sub(text, 1, #mark) == mark then
    first = call('ZPOPMIN', QUEUE)
    local w = first[1]
    if not w then -- RELEASE
        call('DEL', K)
        return {'OK', owner, tonumber(millis)}
    end
    records = call('HMGET', REC, w, 'watch')
    local limit, secret, chan = match(records[1] or '',
                                      '^x 0 0 1 %d+ %d%d%d%d%d+ (%d+) (%x+) p(.*)$')
    local looks, watcher = match(records[2] or '', '^(%d+) (%S+)$')
    local watched = looks and watcher ~= w and #looks == #millis and looks >= millis and
                    looks - millis - CLAIM_MS <= 0
    if limit and #limit == #millis and limit > millis and
       (watched or call('EXISTS', QUEUE) == 0) then
        --#include draw.lua
        if drawn then
            if watched then
                call('HDEL', REC, w)
            else
                call('HDEL', REC, w, 'watch', 'line')
            end
            call('SET', K, 'pawl x ' .. w .. ' ' .. micros .. ' 1 ' .. millis .. ' p' .. chan,
                 'PX', CLAIM_MS)
            heard = redis.pcall('PUBLISH', chan,
                                'g ' .. w .. ' ' .. micros .. ' 1 ' .. CLAIM_TOLD .. ' ' ..
                                millis .. ' ' .. secret .. ' ' .. K)
            passed, heard = true, type(heard) == 'number' and heard > 0
            if heard then
                return {'OK', owner, tonumber(millis)}
            end
        end
    end
end
--#include allowed.lua
--#include base.lua

local kept, linger = tonumber(ARGV[2]), math.min(tonumber(ARGV[3]), 1e14)

-- WATCH: the last waiter has the longest time before its turn, so the last waiter is told to watch.
-- False: the message did not reach that waiter. An empty queue needs no watcher.
local function appoint(ms)
    local w = call('ZRANGE', QUEUE, -1, -1)[1]
    local secret, chan = match(w and call('HGET', REC, w) or '',
                               '^[xs] %d+ %d+ %d+ %d+ %d+ %d+ (%x+) (.*)$')
    if chan and tell(chan, format('f %s %d 0 %.0f %s %s', w, ms, now, secret, K)) then
        call('HSET', REC, 'watch', watching(w, ms))
        return true
    end
    if not w then
        call('HDEL', REC, 'watch', 'line')
    end
    return not w
end

-- The same PASS for less usual cases: a range of tokens, a short lease, a cluster's channel, no
-- watcher, a counter ahead of the clock. If this PASS fails, rules.lua continues.
if first and not passed then
    local w = first[1]
    local n, lease, limit, secret, chan =
        match(records[1] or '', '^x %d+ %d+ (%d+) %d+ (%d+) (%d+) (%x+) (.*)$')
    if n and tonumber(limit) > now then
        local ms, watched = claim_of(lease), watcher(records[2]) ~= w
        call('HDEL', REC, w, watched and w or 'watch')
        passed, heard = pcall(function()
            local token = reserve(n)
            call('SET', K, exclusive('x', w, token, n, now, chan), 'PXAT', now + ms)
            return tell(chan, format('g %s %.0f %s %d %.0f %s %s', w, token, n, ms, now, secret, K))
        end)
        if not passed then -- the server is full: free K, and tell the waiter to check
            call('DEL', K)
            tell(chan, format('f %s 0 0 %.0f %s %s', w, now, secret, K))
            return {'OK', owner, now}
        end
        if heard and ((watched and is_watched(records[2], now + ms)) or appoint(ms)) then
            return {'OK', owner, now}
        end
    else
        call('ZADD', QUEUE, first[2], w)
    end
end
--#include rules.lua

-- Whether the lock lingers already: a repeated release finds the result of the first one.
local function lingers()
    mark = 'pawl z ' .. owner .. ' '
    return (kind == 'z' and sub(value, 1, #mark) == mark) or
           ((kind == 'm' or kind == 'p') and call('ZSCORE', HOLD, 'z:' .. owner))
end

local function let_linger(r)
    if not r then
        call('PEXPIREAT', K, now + linger)
        value = 'pawl z' .. sub(value, 7)
        call('SET', K, value, 'PXAT', now + linger)
        kind = 'z'
        return
    end
    call('ZREM', HOLD, owner)
    call('HDEL', REC, owner)
    call('ZADD', HOLD, now + linger, 'z:' .. owner)
    record('z:' .. owner, r)
    sync()
end

local function reduce(r)
    sync()
    call('HINCRBY', REC, 'used', kept - r.permits)
    r.permits = kept
    record(owner, r)
end

if passed then -- but the new holder is gone, or no watcher could be appointed
    look()
    if not heard then
        kind = nil
    end
    conclude()
    if kind == nil then
        call('DEL', K)
    end
    return {'OK', owner, now}
end
local before = front()
look()
settle()
local mine, r = held(owner)
if not mine then
    conclude(before)
    return {linger > 0 and lingers() and 'OK' or 'NOTHELD', owner, now}
end
if kept > 0 then
    if r and kept < r.permits then
        reduce(r)
        conclude(before)
    end
    return {'OK', owner, now}
end
if linger > 0 then
    let_linger(r)
    conclude(before, nil, true)
    return {'OK', owner, now}
end
-- RELEASE. A successor's SET replaces K, so that K is never missing in between.
if r then
    leave(owner, r)
else
    kind = nil
end
conclude(before)
if kind == nil then
    call('DEL', K)
end
return {'OK', owner, now}
