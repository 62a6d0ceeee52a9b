-- SPDX-License-Identifier: Apache-2.0
--
-- The usual way to one token, as a part of a block (a function would cost more): `drawn` says
-- whether it is `micros`. Else the counter is ahead of the clock, or not a counter: nothing changed.
local last = redis.pcall('SET', FENCE, micros, 'EX', FENCE_S, 'GET')
local drawn = not last or (type(last) == 'string' and #last == #micros and last < micros)
if not drawn and type(last) == 'string' then
    call('SET', FENCE, last) -- reserve() comes next, and sets when it ends
end
