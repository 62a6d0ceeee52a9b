-- SPDX-License-Identifier: Apache-2.0
--
-- What the scripts of locks and semaphores begin with. KEYS as in rules.lua.
--
-- A server that was asleep runs everything for the first time, as far as its caches know: a printed
-- number, a local function or a command of another sort costs a microsecond or more each. So
-- acquire and release begin with their usual cases spelled out on text alone, before base.lua and
-- rules.lua, which do the rest.
local call, sub, match = redis.call, string.sub, string.match
local K, FENCE, QUEUE, REC, HOLD = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
-- A claim, ms, and what of it is told where K's time is not counted from the same reading of the clock.
local CLAIM_MS, CLAIM_TOLD = '2000', '1999'
-- How long the counter outlives its token when that is set, ms: see base.lua.
local FENCE_MS = '96400000'
local time = call('TIME')
local micros = time[1] .. sub('00000' .. time[2], -6)
local millis = sub(micros, 1, -4)
