-- SPDX-License-Identifier: Apache-2.0
--
-- break: end every grant of K, notify the holders, and pass the lock on as a release would.
--
-- KEYS: as in rules.lua. ARGV: 1 text that names the breaker. Replies: OK now | NOTHELD now. A
-- stranger's K is deleted, too; a latch has no holders. The holders' clients get "e owner now
-- text".
--#include head.lua
--#include base.lua
--#include rules.lua

local function evict(owner, chan)
    if chan and sub(owner, 1, 2) ~= 'z:' then
        tell(chan, format('e %s %.0f %s', owner, now, ARGV[1] or ''))
    end
end

local before = front()
look()
settle()
local had = kind ~= nil and kind ~= 'l' and kind ~= '?'
if kind == 'x' then
    evict(match(value, '^pawl x (%S+) %d+ %d+ %d+ (.*)$'))
elseif kind == 'm' or kind == 'p' then
    for _, member in ipairs(call('ZRANGE', HOLD, 0, -1)) do
        local r = read(member)
        evict(member, r and r.chan)
        drop_holder(member)
    end
end
if had then
    call('DEL', K)
    call('HDEL', REC, 'used', 'x')
    kind = nil
end
if kind ~= 'l' and kind ~= '?' then
    conclude(before)
end
return {had and 'OK' or 'NOTHELD', now}
