-- SPDX-License-Identifier: Apache-2.0
--
-- Messages to a client's channel, for all scripts that send any. Needs the locals call, sub, match.

-- Send a message. Returns whether a client received the message. The channel's first letter says
-- how to send: p plain; in a cluster c plain, s sharded ({N}CHANNEL). A sharded message that nobody
-- receives (the slot has just moved here), or that the user may not send, is sent plain. Other
-- nodes of a cluster pass messages on, so in a cluster a message ends with the id of the sending
-- node: PUBLISH counts only receivers at that node.
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
