-- SPDX-License-Identifier: Apache-2.0
--
-- release: end the owner's grant and pass it on.
--
-- KEYS: as in rules.lua. ARGV: 1 owner, 2 permits to keep (0: none), 3 linger ms (0: end now).
-- Replies: OK owner now | NOTHELD owner now. Works on a full server.
--#include base.lua

local owner, kept, linger = ARGV[1], tonumber(ARGV[2]), math.min(tonumber(ARGV[3]), 1e14)
local mark = 'pawl x ' .. owner .. ' '

-- WATCH: whoever came last has the longest time before its turn, so it is asked to.
local function appoint(ms)
    local w = call('ZRANGE', QUEUE, -1, -1)[1]
    local chan = match(call('HGET', REC, w) or '', '^[xs] %d+ %d+ %d+ %d+ %d+ %d+ (.*)$')
    if chan and tell(chan, format('f %s %d 0 %.0f', w, ms, now)) then
        call('HSET', REC, 'watch', watching(w, ms))
        return true
    end
end

-- The usual cases, in as few calls as can be: nobody waits, or the front wants it exclusively and
-- hears of it. The rest is left to the rules, also what is begun here and does not work out.
local text = redis.pcall('GET', K)
local passed, heard
if kept == 0 and linger <= 0 and type(text) == 'string' and sub(text, 1, #mark) == mark then
    local two = call('ZRANGE', QUEUE, 0, 1)
    local w, behind = two[1], two[2]
    if not w then -- RELEASE
        call('DEL', K)
        return {'OK', owner, now}
    end
    local records = call('HMGET', REC, w, 'watch')
    local n, lease, limit, chan = match(records[1] or '', '^x %d+ %d+ (%d+) %d+ (%d+) (%d+) (.*)$')
    if n and tonumber(limit) > now then
        local ms = math.min(lease, CLAIM_MS)
        call('ZREM', QUEUE, w) -- PASS
        call('HDEL', REC, w, behind and w or 'watch')
        passed, heard = pcall(function()
            local token = reserve(n)
            call('SET', K, exclusive('x', w, token, n, now, chan), 'PXAT', now + ms)
            return tell(chan, format('g %s %.0f %s %d %.0f', w, token, n, ms, now))
        end)
        if not passed then -- it can't be written: free, and the waiter looks for itself
            call('DEL', K)
            tell(chan, format('f %s 0 0 %.0f', w, now))
            return {'OK', owner, now}
        end
        if heard and (not behind or is_watched(records[2], now + ms) or appoint(ms)) then
            return {'OK', owner, now}
        end
    end
end
--#include rules.lua

-- A repeated release finds what the first one made of it.
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

if passed then -- to a waiter that is gone, or the one behind it is
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
-- RELEASE. A successor's SET replaces K, so that it is never missing in between.
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
