-- SPDX-License-Identifier: Apache-2.0
--
-- latch: set a count-down latch, or count a latch down.
--
-- KEYS: 1 K, 2 {K}:done, 3 {K}:queue, 4 {K}:rec. ARGV: 1 "set" or "down", 2 owner, 3 count (set),
-- 4 how long the receipt of a request is kept, ms.
-- Replies: OK owner count | STATE owner | INVAL owner.
--
-- K is "pawl l COUNT ROUND" and has no lease; the round is the owner that set the latch. {K}:done
-- has the receipts: the owners whose requests were carried out, so that a repeated request changes
-- nothing, also after the latch has opened. When the latch opens, every waiter gets "o owner now
-- secret K".
local call, format, match, sub = redis.call, string.format, string.match, string.sub
local K, DONE, QUEUE, REC = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local what, owner, count, remember = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local value = redis.pcall('GET', K)
local text = value
--#include allowed.lua
--#include tell.lua

local function receipt()
    call('ZREMRANGEBYSCORE', DONE, '-inf', now)
    call('ZREMRANGEBYRANK', DONE, 0, -1024)
    call('ZADD', DONE, now + remember, owner)
    call('PEXPIREAT', DONE, now + remember)
end

local function open()
    for _, w in ipairs(call('ZRANGE', QUEUE, 0, -1)) do
        local secret, chan = match(call('HGET', REC, w) or '',
                                   '^l %d+ %d+ %d+ %d+ %d+ %d+ (%x+) (.*)$')
        if chan then
            tell(chan, format('o %s %.0f %s %s', w, now, secret, K))
        end
        call('HDEL', REC, w)
    end
    call('DEL', K, QUEUE)
end

local current, round = match(type(value) == 'string' and value or '', '^pawl l (%d+) (.*)$')
local used_as_lock = value and not current
if not value and call('EXISTS', QUEUE) == 1 then
    local w = call('ZRANGE', QUEUE, 0, 0)[1]
    used_as_lock = sub(call('HGET', REC, w) or 'l', 1, 1) ~= 'l'
end
current = tonumber(current or 0)
if what == 'set' and not (count >= 1 and count < 9007199254740992) then
    return {'INVAL', owner}
elseif used_as_lock then
    return {'STATE', owner}
elseif call('ZSCORE', DONE, owner) then
    return {'OK', owner, current}
elseif what == 'set' then
    if current > 0 then
        return {'STATE', owner}
    end
    open() -- wakes the waiters of a latch that was deleted
    call('SET', K, format('pawl l %.0f %s', count, owner))
    current = count
    receipt()
elseif current > 0 then
    current = current - 1
    if current > 0 then
        call('SET', K, format('pawl l %.0f %s', current, round))
    else
        open()
    end
    receipt()
end
return {'OK', owner, current}
