# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests, made by the openssl tool in a private folder.

There are an authority (ca), a server (for localhost and 127.0.0.1), a server with another name (elsewhere),
an expired server certificate (expired), a client, and an unknown authority (other) with a client. Each
certificate is NAME.pem with NAME.key.
"""
import os
import subprocess

HERE_NAMES = 'subjectAltName=DNS:localhost,IP:127.0.0.1'


def _openssl(*words):
    done = subprocess.run(['openssl', *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          check=False)
    assert done.returncode == 0, done.stderr.decode()


class Certs:
    def __init__(self, folder):
        self.folder = os.path.join(folder, 'certs')
        os.mkdir(self.folder)
        self._authority('ca')
        self._authority('other')
        self._signed('server', 'ca', HERE_NAMES)
        self._signed('elsewhere', 'ca', 'subjectAltName=DNS:elsewhere.example')
        self._signed('expired', 'ca', HERE_NAMES, days='-1')
        self._signed('client', 'ca', 'extendedKeyUsage=clientAuth')
        self._signed('stranger', 'other', 'extendedKeyUsage=clientAuth')

    def pem(self, name):
        return os.path.join(self.folder, name + '.pem')

    def key(self, name):
        return os.path.join(self.folder, name + '.key')

    def _key(self, name):
        _openssl('genpkey', '-algorithm', 'EC', '-pkeyopt', 'ec_paramgen_curve:prime256v1',
                 '-out', self.key(name))

    def _authority(self, name):
        self._key(name)
        _openssl('req', '-x509', '-new', '-key', self.key(name), '-out', self.pem(name), '-days',
                 '2', '-subj', f'/CN=Test authority {name}', '-addext',
                 'keyUsage=critical,keyCertSign', '-addext', 'basicConstraints=critical,CA:TRUE')

    def _signed(self, name, authority, extension, days='2'):
        self._key(name)
        request = os.path.join(self.folder, name + '.csr')
        extensions = os.path.join(self.folder, name + '.ext')
        with open(extensions, 'w', encoding='ascii') as f:
            f.write(extension + '\n')
        _openssl('req', '-new', '-key', self.key(name), '-out', request, '-subj', f'/CN={name}')
        _openssl('x509', '-req', '-in', request, '-CA', self.pem(authority), '-CAkey',
                 self.key(authority), '-CAcreateserial', '-days', days, '-extfile', extensions,
                 '-out', self.pem(name))

    def options(self, name='server', clients='no'):
        """The options with which redis-server serves TLS on a free port (Live.extra_port)."""
        return ['--tls-port', '@PORT@', *self._files(name), '--tls-auth-clients', clients]

    def only(self):
        """The options with which redis-server uses TLS only, also between servers."""
        return ['--port', '0', '--tls-port', '@SELF@', *self._files('server'), '--tls-auth-clients',
                'no', '--tls-replication', 'yes']

    def _files(self, name):
        return ['--tls-cert-file', self.pem(name), '--tls-key-file',
                self.key(name), '--tls-ca-cert-file', self.pem('ca')]
