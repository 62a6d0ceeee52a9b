-- SPDX-License-Identifier: Apache-2.0
--
-- inspect: list the holders and waiters of K. Changes nothing.
--
-- KEYS: as in rules.lua (2 is not read). ARGV: 1 how many holders and waiters to list at most.
-- Reply: now, type (free|lock|semaphore|latch|foreign|other), count (capacity, or the latch's),
-- permits in use, number of holders, number of waiters, then an array for each holder and waiter:
-- role (h|w), owner ("" for a stranger; "z:OWNER": lingers), mode, permits, token, ntokens, since,
-- left ms (-1 unknown; of a waiter: how long the place is kept).
local call, match, sub = redis.call, string.match, string.sub
local K, QUEUE, REC, HOLD = KEYS[1], KEYS[3], KEYS[4], KEYS[5]
local most = tonumber(ARGV[1])
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local value = redis.pcall('GET', K)
local text = value
--#include allowed.lua
local rows, holders, waiters, used, count = {}, 0, 0, 0, 0
local names = {x = 'lock', z = 'lock', m = 'lock', p = 'semaphore', l = 'latch', s = 'lock'}
local kind, kind_of_queue

-- The first waiter, who has waited longest, is listed however many holders there are.
local function add(role, ...)
    if #rows < (role == 'h' and most - 1 or most) then
        rows[#rows + 1] = {role, ...}
    end
end

local function fields(owner)
    return match(call('HGET', REC, owner) or '', '^(%a) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ')
end

if type(value) == 'table' then
    kind = 'other'
elseif value then
    kind = match(value, '^pawl ([xz]) %S+ %d+ %d+ %d+ .') or match(value, '^pawl (m)$') or
           match(value, '^pawl ([pl]) %d+') or 'foreign'
end
if kind == 'x' or kind == 'z' then
    local owner, token, n, since = match(value, '^pawl . (%S+) (%d+) (%d+) (%d+) ')
    holders = 1
    add('h', (kind == 'z' and 'z:' or '') .. owner, 'x', 0, tonumber(token), tonumber(n),
        tonumber(since), call('PTTL', K))
elseif kind == 'foreign' then
    holders = 1
    add('h', '', 'x', 0, 0, 0, -1, call('PTTL', K))
elseif kind == 'm' or kind == 'p' then
    local all = call('ZRANGEBYSCORE', HOLD, '(' .. now, '+inf', 'WITHSCORES')
    for i = 1, #all, 2 do
        local mode, permits, _, n, since, _, token = fields(all[i])
        if mode then
            holders = holders + 1
            used = used + permits
            add('h', all[i], mode, tonumber(permits), tonumber(token), tonumber(n),
                tonumber(since), all[i + 1] - now)
        end
    end
end
if kind == 'p' or kind == 'l' then
    count = tonumber(match(value, '^pawl . (%d+)'))
end
if most == 0 then
    waiters = call('ZCARD', QUEUE)
else
    for _, w in ipairs(call('ZRANGE', QUEUE, 0, -1)) do
        local mode, permits, capacity, _, since, _, limit = fields(w)
        if mode and tonumber(limit) > now then
            waiters = waiters + 1
            kind_of_queue = kind_of_queue or mode
            count = (not kind and mode == 'p') and tonumber(capacity) or count
            add('w', w, mode, tonumber(permits), 0, 0, tonumber(since), limit - now)
        end
    end
end
kind = kind or kind_of_queue
return {now, names[kind] or kind or 'free', count, used, holders, waiters, rows}
