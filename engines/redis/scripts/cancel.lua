-- SPDX-License-Identifier: Apache-2.0
--
-- cancel: leave the queue; if the lock was granted meanwhile, pass the lock on.
--
-- KEYS: as in rules.lua. ARGV: 1 owner; 2 and 3, if a message was about an acquire that the client
-- does not know (DISOWN): the token of the grant, or "" for a message to watch, and the server's
-- time in the message.
-- Replies: QUEUED owner now (the owner waited) | HELD owner now (the owner had a grant, which is
-- passed on) | NOTHELD owner now. Only for owners whose caller has not got the lock: without ARGV 2
-- any grant of the owner ends.
--
-- DISOWN. After a fail-over or a restart from an older snapshot the queue may name an acquire that
-- has ended. The client may still believe in a grant to that owner, and a renewal may have come
-- before this script. So a grant ends only if its token is ARGV 2 and its claim was never renewed.
-- A forged message can name a time in the future, which would make a renewed lease look like a claim:
-- such a time is refused.
--#include head.lua
--#include base.lua
--#include rules.lua

local owner, token, granted = ARGV[1], ARGV[2], tonumber(ARGV[3])
local before = front()

-- Whether the grant is the one in the message, and was never renewed.
local function untouched(r)
    local ends = r and tonumber(call('ZSCORE', HOLD, owner)) or now + call('PTTL', K)
    local given = r and format('%.0f', r.limit) or match(value, '^pawl x %S+ (%d+) ')
    return given == token and granted and granted <= now and
        ends <= granted + CLAIM_MS + 50
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
