-- SPDX-License-Identifier: Apache-2.0
--
-- The usual way to get one token, as a part of a block (a function would cost more): if `drawn`,
-- the token is `micros`. Else the counter is ahead of the clock, or not a counter: nothing has
-- changed. The counter's time to live is set only once in 10,000 s (when the first digits change),
-- because PEXPIRE would cost a microsecond each time.
local last = redis.pcall('SET', FENCE, micros, 'KEEPTTL', 'GET')
local drawn = not last or (type(last) == 'string' and #last == #micros and last < micros)
if drawn and sub(last or '', 1, 6) ~= sub(micros, 1, 6) then
    call('PEXPIRE', FENCE, FENCE_MS)
elseif not drawn and type(last) == 'string' then
    call('SET', FENCE, last, 'KEEPTTL')
end
