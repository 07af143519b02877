// A receiver of deliveries on a free port of this machine.
import { createHmac } from 'node:crypto';
import http from 'node:http';

export class Receiver {
  requests = [];
  #waiting = [];
  #answers = new Map();

  static async listen() {
    const r = new Receiver();
    r.server = http.createServer((req, res) => r.#serve(req, res));
    await new Promise((done) => r.server.listen(0, '127.0.0.1', done));
    r.base = `http://127.0.0.1:${r.server.address().port}`;
    return r;
  }

  // answer sets the statuses that requests to a path get, one after the other; the last one stays.
  answer(where, ...statuses) {
    this.#answers.set(where, statuses);
  }

  #serve(req, res) {
    const chunks = [];
    req.on('data', (c) => chunks.push(c));
    req.on('end', () => {
      const body = Buffer.concat(chunks).toString();
      let json;
      try {
        json = JSON.parse(body);
      } catch {
        json = undefined; // a check looks at body then
      }
      const statuses = this.#answers.get(req.url) ?? [200];
      res.writeHead(statuses.length > 1 ? statuses.shift() : statuses[0], { 'Content-Type': 'application/json' });
      res.end('{"received":true}');
      this.requests.push({ method: req.method, path: req.url, headers: req.headers, body, json });
      for (const w of [...this.#waiting]) w();
    });
  }

  // wait returns the requests to a path once there are at least n of them.
  wait(where, n, patience = 15000) {
    return new Promise((resolve, reject) => {
      const seen = () => this.requests.filter((r) => r.path === where);
      const end = (settle, value) => {
        clearTimeout(timer);
        this.#waiting.splice(this.#waiting.indexOf(look), 1);
        settle(value);
      };
      const look = () => seen().length >= n && end(resolve, seen());
      const timer = setTimeout(() => end(reject, new Error(`${seen().length} of ${n} requests came to ${where} within ${patience} ms`)), patience);
      this.#waiting.push(look);
      look();
    });
  }

  close() {
    this.server.closeAllConnections();
    this.server.close();
  }
}

// signature is what a delivery's X-Objectstack-Signature has to be.
export const signature = (secret, body) => `sha256=${createHmac('sha256', secret).update(body).digest('hex')}`;
