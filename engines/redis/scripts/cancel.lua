-- SPDX-License-Identifier: Apache-2.0
--
-- cancel: leave the queue; and if the grant is already on its way, pass it on.
--
-- KEYS: as in rules.lua. ARGV: 1 owner.
-- Replies: QUEUED owner now (it was) | HELD owner now (it was, and is passed on) | NOTHELD owner
-- now. Only for an owner whose acquire has not been taken up: its grant ends whatever it is.
--#include head.lua
--#include base.lua
--#include rules.lua

local owner = ARGV[1]
local before = front()

look()
settle()
if call('ZSCORE', QUEUE, owner) then
    local watched = watcher(call('HGET', REC, 'watch')) == owner
    drop_waiter(owner)
    conclude(not watched and before)
    return {'QUEUED', owner, now}
end
local mine, r = held(owner)
if not mine then
    conclude(before)
    return {'NOTHELD', owner, now}
end
leave(owner, r or {mode = 'x'})
conclude(before)
return {'HELD', owner, now}
