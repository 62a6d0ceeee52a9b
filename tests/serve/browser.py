# SPDX-License-Identifier: Apache-2.0
"""Headless Chromium, driven by its debugging protocol over a pipe."""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

PATIENCE = 60  # seconds; only a hang takes so long


class Browser:
    def __init__(self):
        exe = shutil.which('chromium') or shutil.which('chromium-browser')
        assert exe, 'no chromium; scripts/deps test installs it'
        self.profile = tempfile.mkdtemp(prefix='pawl-chromium-')
        to_read, self.to = os.pipe()
        self.back, from_write = os.pipe()
        # The browser reads from its descriptor 3 and writes to 4.
        self.process = subprocess.Popen(
            ['sh', '-c', f'exec 3<&{to_read} 4>&{from_write}; exec "$@"', 'sh', exe, '--headless=new',
             '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run',
             '--disable-extensions', '--disable-background-networking', '--hide-scrollbars',
             '--remote-debugging-pipe', f'--user-data-dir={self.profile}', 'about:blank'],
            pass_fds=(to_read, from_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(to_read)
        os.close(from_write)
        self.last, self.buffer, self.events = 0, b'', []
        self.session = None
        target = self.call('Target.createTarget', url='about:blank')['targetId']
        self.session = self.call('Target.attachToTarget', targetId=target,
                                 flatten=True)['sessionId']
        for domain in ('Page', 'Runtime', 'Log', 'Network'):
            self.call(domain + '.enable')

    def message(self):
        while b'\0' not in self.buffer:
            part = os.read(self.back, 1 << 20)
            assert part, 'the browser is gone'
            self.buffer += part
        text, _, self.buffer = self.buffer.partition(b'\0')
        return json.loads(text)

    def call(self, method, **params):
        self.last += 1
        request = {'id': self.last, 'method': method, 'params': params}
        if self.session:
            request['sessionId'] = self.session
        os.write(self.to, json.dumps(request).encode() + b'\0')
        while True:
            answer = self.message()
            if answer.get('id') == self.last:
                assert 'error' not in answer, answer['error']
                return answer['result']
            self.events.append(answer)

    def js(self, expression):
        result = self.call('Runtime.evaluate', expression=expression, returnByValue=True,
                           awaitPromise=True)
        assert 'exceptionDetails' not in result, result
        return result['result'].get('value')

    def wait(self, expression):
        end = time.monotonic() + PATIENCE
        while True:
            value = self.js(expression)
            if value:
                return value
            assert time.monotonic() < end, 'timed out waiting for ' + expression
            time.sleep(0.05)

    def open(self, url, width=1200, height=760, dark=False):
        self.call('Emulation.setDeviceMetricsOverride', width=width, height=height,
                  deviceScaleFactor=1, mobile=False)
        self.call('Emulation.setEmulatedMedia', features=[
            {'name': 'prefers-color-scheme', 'value': 'dark' if dark else 'light'}])
        self.call('Page.navigate', url=url)
        self.wait('document.body && document.body.dataset.ready')

    def complaints(self):
        """The errors of the console, the network and the content security policy."""
        self.js('1')
        return [e for e in self.events if e.get('method') in
                ('Runtime.exceptionThrown', 'Page.javascriptDialogOpening') or
                e.get('method') == 'Log.entryAdded' and
                e['params']['entry']['level'] in ('error', 'warning')]

    def requests(self):
        return [e['params']['request']['url'] for e in self.events
                if e.get('method') == 'Network.requestWillBeSent']

    def picture(self, path):
        data = base64.b64decode(self.call('Page.captureScreenshot', format='png')['data'])
        with open(path, 'wb') as f:
            f.write(data)

    def close(self):
        try:
            os.write(self.to, json.dumps({'id': 0, 'method': 'Browser.close'}).encode() + b'\0')
            self.process.wait(timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.to)
        os.close(self.back)
        shutil.rmtree(self.profile, ignore_errors=True)
