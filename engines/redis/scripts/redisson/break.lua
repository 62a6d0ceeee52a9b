-- SPDX-License-Identifier: Apache-2.0
--
-- break, in the layout `redisson`: what forceUnlock does, for whatever N is.
--
-- KEYS, ARGV 1-7: as in common.lua, mode x; 5 the mutex's channel; 8 the channel of read-write
-- locks, 9 the one of semaphores.
-- Replies: OK now | NOTHELD now.
--#include common.lua

if kind == 'hash' then
    local how = call('HGET', N, 'mode')
    if how then
        channel = ARGV[8]
        mode = how == 'write' and 'w' or 'x'
    elseif call('EXISTS', QUEUE) == 1 then
        clean()
        mode = 'f'
    end
    call('DEL', N)
    wake()
    if mode == 'f' then
        tell(0)
    end
    return {'OK', now}
elseif kind == 'string' and call('EXISTS', PERMITS) == 1 then
    channel = ARGV[9]
    local n = call('ZCARD', PERMITS)
    call('DEL', PERMITS)
    tell(call('INCRBY', N, n))
    return {'OK', now}
end
return {'NOTHELD', now}
