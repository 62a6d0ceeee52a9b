-- SPDX-License-Identifier: Apache-2.0
--
-- latch, in the layout `redisson`: set a count, or count down.
--
-- KEYS, ARGV 1-7: as in common.lua, mode l. ARGV 8 "set" or "down", 9 count.
-- Replies: OK tag count | STATE tag | INVAL tag.
--#include common.lua

local count = tonumber(ARGV[9])
local current = kind == 'string' and tonumber(call('GET', N)) or 0

if not of_type() then
    return {'STATE', tag}
elseif ARGV[8] == 'set' and not (count >= 1 and count < 9007199254740992) then
    return {'INVAL', tag}
elseif call('GET', RECEIPT) then
    return {'OK', tag, current}
elseif ARGV[8] == 'set' then
    if kind ~= 'none' then
        return {'STATE', tag}
    end
    call('SET', N, format('%.0f', count))
    tell(1)
    current = count
elseif kind ~= 'none' then
    current = call('DECR', N)
    if current <= 0 then
        call('DEL', N)
    end
    if current == 0 then
        tell(0)
    end
end
call('SET', RECEIPT, 1, 'PX', 60000)
return {'OK', tag, math.max(current, 0)}
