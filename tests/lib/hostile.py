# SPDX-License-Identifier: Apache-2.0
"""Names that an unknown program may have given to locks (Redis accepts any bytes as a key), a hostile
label, and the form in which the command shows them."""
import re

CHINESE = '库存锁定测试'
HOSTILE = [
    b'<script>document.title="owned"</script>',
    b'<img src=x onerror=document.title="owned">',
    b'"\'`&lt;&amp;${document.title="owned"}</title></textarea>',
    b'javascript:document.title="owned"',
    b'two\nlines\r\nand\ttabs',
    b'\x1b]0;owned\x07\x1b[31mred\x1b[2J',
    b'not utf-8: \xff\xfe\xe0\x80\xaf\xed\xa0\x80\xf4\x90\x80\x80\xc3',
    'right \u202eto left\u2066 \u200f'.encode(),
    (CHINESE * 20).encode()[:255],
    b'../../etc/passwd?name=x&y#z%00 +',
    b'$(touch owned)`touch owned`;touch owned',
    b'-uredis://owned.invalid/ %s%n',
]


# Pawl lists no names with control characters, because such names are not valid in Pawl.
LISTED = [name for name in HOSTILE if all(byte >= 0x20 for byte in name)]
LABEL = '<b onmouseover=x>"\'&\x1b[31m\n\u202e\\'


# The characters that are escaped: control characters, and marks that change the direction of text.
HARMFUL = re.compile('[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]')


def shown(name):
    """A name or label as the command prints it."""
    text = name.decode(errors='surrogateescape') if isinstance(name, bytes) else name
    text = HARMFUL.sub(lambda c: ('\\x%02x' if ord(c[0]) < 0x80 else '\\u%04x') % ord(c[0]), text)
    return ''.join(f'\\x{ord(c) - 0xdc00:02x}' if 0xdc80 <= ord(c) <= 0xdcff else c for c in text)


def clean(output):
    """The output as text; fails unless the output is UTF-8 without harmful characters."""
    text = output if isinstance(output, str) else output.decode()
    bad = HARMFUL.search(text.replace('\n', ''))
    assert not bad, f'{bad[0]!r} in {text!r}'
    return text


def plant(server, names=HOSTILE, lease_ms=600000):
    """Create locks in the layout of the real Redisson: a hash with an owner, which expires."""
    for name in names:
        server.call('HSET', name, 'b0d0ccb6-3b7e-4b3c-9d5c-1f1f1f1f1f1f:1', '1')
        server.call('PEXPIRE', name, lease_ms)
