-- SPDX-License-Identifier: Apache-2.0
--
-- GET of K is a pcall, since K may be a stranger's key of another type. `text` is the answer of
-- GET. If GET failed for any other reason (the user has no right to use GET), the script fails as
-- well, with the line of the GET: else K would look taken. Needs the local call.
if type(text) == 'table' and not string.find(text.err, 'WRONGTYPE', 1, true) then
    call('GET', K)
end
