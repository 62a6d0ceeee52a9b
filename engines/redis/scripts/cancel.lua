-- SPDX-License-Identifier: Apache-2.0
--
-- cancel: leave the queue; and if the grant is already on its way, pass it on.
--
-- KEYS: as in rules.lua. ARGV: 1 owner; 2 and 3, from a client that was told of an acquire it does
-- not know (DISOWN): the token of the grant, or "" if it was told to watch, and when it was granted.
-- Replies: QUEUED owner now (it was) | HELD owner now (it was, and is passed on) | NOTHELD owner
-- now. Only for an owner whose acquire has not been taken up: its grant ends whatever it is.
--
-- DISOWN. After a fail-over or a restart from an older snapshot the queue may name an acquire that
-- has ended. Its client may still believe in a grant to that owner, and a renewal may have come
-- before this: so the grant ends only if it is just that one, and a claim that nobody has renewed.
--#include head.lua
--#include base.lua
--#include rules.lua

local owner, token, granted = ARGV[1], ARGV[2], tonumber(ARGV[3])
local before = front()

-- Is the grant of which the client was told still as it was made?
local function untouched(r)
    local ends = r and tonumber(call('ZSCORE', HOLD, owner)) or now + call('PTTL', K)
    local given = r and format('%.0f', r.limit) or match(value, '^pawl x %S+ (%d+) ')
    return given == token and granted and ends <= granted + CLAIM_MS + 50
end

look()
settle()
if call('ZSCORE', QUEUE, owner) then
    local watched = watcher(call('HGET', REC, 'watch')) == owner
    drop_waiter(owner)
    conclude(not watched and before)
    return {'QUEUED', owner, now}
end
local mine, r = held(owner)
if not mine or (token and not untouched(r)) then
    conclude(before)
    return {'NOTHELD', owner, now}
end
leave(owner, r or {mode = 'x'})
conclude(before)
return {'HELD', owner, now}
