-- SPDX-License-Identifier: Apache-2.0
--
-- A message to a client's channel, for every script that sends one. Wants the locals call, sub and match.

-- Whether anybody heard it. The channel's first letter says how: p plain; in a cluster c plain, s
-- sharded ({N}CHANNEL), or if nobody listens there (the slot has just moved here), or we may not
-- send there, on the plain one.
-- Other nodes of a cluster pass messages on, so there it ends with who sent it: only what comes
-- from that very node was counted here.
local function tell(chan, text)
    local how, to = sub(chan, 1, 1), sub(chan, 2)
    local n = 0
    if how ~= 'p' then
        text = text .. ' ' .. sub(call('CLUSTER', 'MYID'), 1, 16)
    end
    if how == 's' then
        n = redis.pcall('SPUBLISH', to, text)
        to = match(to, '^{%d+}(.*)$') or to
    end
    if type(n) ~= 'number' or n == 0 then
        n = redis.pcall('PUBLISH', to, text)
    end
    return type(n) == 'number' and n > 0
end
