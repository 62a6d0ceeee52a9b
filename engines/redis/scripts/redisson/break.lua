-- SPDX-License-Identifier: Apache-2.0
--
-- break, in the layout `redisson`: like forceUnlock, for every kind of lock. Pawl's holders are
-- notified, each client on its own channel; Redisson's holders notice at their next renewal.
--
-- KEYS, ARGV 1-7: as in common.lua, mode x. ARGV: 8 text that names the breaker: the message.
-- Replies: OK now | NOTHELD now.
--#include common.lua

-- The name of a client's channel has the first 60 bits of the client id. The UUIDs of the client's
-- owners and the ids of its permits begin with the same bits. A plain message reaches all nodes of
-- a cluster.
local told = {}
local function tell_client(id)
    if not told[id] then
        told[id] = true
        redis.pcall('PUBLISH', 'redisson_pawl:' .. id, ARGV[8] or '')
    end
end

local function tell_holders()
    for _, who in ipairs(call('HKEYS', N)) do
        local a, b, c = match(who, '^(%x%x%x%x%x%x%x%x)%-(%x%x%x%x)%-4(%x%x%x)%-')
        if a then
            tell_client(a .. b .. c)
        end
    end
end

local function tell_takers()
    for _, id in ipairs(call('ZRANGE', PERMITS, 0, -1)) do
        local hex = string.gsub(string.sub(id, 1, 8), '.', function(c)
            return format('%02x', string.byte(c))
        end)
        tell_client(string.sub(hex, 1, 15))
    end
end

if kind == 'hash' then
    clean()
    tell_holders()
    call('DEL', N)
    mode = how == 'read' and 'r' or mode
    wake()
    return {'OK', now}
elseif kind == 'string' and call('EXISTS', PERMITS) == 1 then
    tell_takers()
    local n = call('ZCARD', PERMITS)
    call('DEL', PERMITS)
    tell(call('INCRBY', N, n), 'redisson_sc:' .. base)
    return {'OK', now}
end
return {'NOTHELD', now}
