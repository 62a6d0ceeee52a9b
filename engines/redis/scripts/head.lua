-- SPDX-License-Identifier: Apache-2.0
--
-- The beginning of acquire, release, cancel and break. KEYS as in rules.lua.
--
-- A server that was idle has cold caches: a formatted number, a local function or another command
-- costs a microsecond or more each. So acquire and release begin with their usual cases, written
-- out with string operations only. base.lua and rules.lua do the rest.
local call, sub, match = redis.call, string.sub, string.match
local K, FENCE, QUEUE, REC, HOLD = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
-- A claim, ms; and its length in a message if K expires by PX, which reads the clock separately.
local CLAIM_MS, CLAIM_TOLD = '2000', '1999'
-- The time to live of the counter, ms: see base.lua.
local FENCE_MS = '96400000'
local time = call('TIME')
local micros = time[1] .. sub('00000' .. time[2], -6)
local millis = sub(micros, 1, -4)
