-- SPDX-License-Identifier: Apache-2.0
--
-- inspect, in the layout `redisson`: list the holders and waiters of N. Changes nothing.
--
-- KEYS, ARGV 1-7: as in common.lua. ARGV 8 how many rows at most. The reply is as in the layout
-- `pawl`; an owner is Redisson's "UUID:THREAD". Only fair locks have a list of waiters. `since` is
-- never known. `permits` of a lock's holder is the hold count.
--#include common.lua

local most, rows, holders, waiters, used, count = tonumber(ARGV[8]), {}, 0, 0, 0, 0
local what = 'free'
local token = tonumber(call('GET', TOKEN) or 0) or 0

local function add(...)
    if #rows < most then
        rows[#rows + 1] = {...}
    end
end

-- How long a reader still holds N, ms: the longest of the reader's holds. -2: all holds have ended,
-- and the next request removes the reader. The count is not trusted: any program can write the key.
local function reads_for(who, n)
    local most = -2
    for i = n, math.max(1, n - 99), -1 do
        most = math.max(most, call('PTTL', hold_key(who, i)))
    end
    return most
end

local function lock_rows()
    local all = call('HGETALL', N)
    local ours = 0
    for i = 1, #all, 2 do
        local who, n = all[i], tonumber(all[i + 1])
        if who ~= 'mode' and n and match(who, '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+') then
            local reads = call('HEXISTS', N, 'mode') == 1 and not match(who, ':write$')
            local left = reads and reads_for(who, n) or call('PTTL', N)
            ours = ours + 1
            if left ~= -2 then
                holders = holders + 1
                add('h', who, reads and 's' or 'x', n, reads and 0 or token, 1, -1, left)
            end
        end
    end
    for _, who in ipairs(call('LRANGE', QUEUE, 0, -1)) do
        local alive = call('ZSCORE', WAITING, who)
        if not alive or tonumber(alive) > now then -- else dead: the next request removes it
            waiters = waiters + 1
            add('w', who, 'x', 0, 0, 0, -1, -1)
        end
    end
    what = ours > 0 and 'lock' or 'other'
end

if kind == 'hash' then
    lock_rows()
elseif kind == 'string' and call('EXISTS', PERMITS) == 1 then
    local all = call('ZRANGEBYSCORE', PERMITS, '(' .. now, '+inf', 'WITHSCORES')
    what, used = 'semaphore', #all / 2
    count = (tonumber(call('GET', N)) or 0) + call('ZCARD', PERMITS)
    for i = 1, #all, 2 do
        holders = holders + 1
        add('h', '', 'p', 1, 0, 0, -1, all[i + 1] == NEVER and -1 or all[i + 1] - now)
    end
elseif kind == 'string' then
    count = tonumber(call('GET', N))
    what = count and (mode == 'l' and 'latch' or (mode == 'p' or mode == 'c') and 'semaphore') or
           'other'
    count = count or 0
elseif kind ~= 'none' then
    what = 'other'
end
return {now, what, count, used, holders, waiters, rows}
