// The harness of the checks: it loads the official client, records what the client sends, and runs named checks.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

// loadClient imports @objectstack/client from the node_modules of a folder and returns its constructor.
export async function loadClient(folder) {
  const resolve = createRequire(path.join(path.resolve(folder), 'from-here.js')).resolve;
  const main = resolve('@objectstack/client');
  const { ObjectStackClient } = await import(pathToFileURL(main.replace(/\.js$/, '.mjs')).href);
  return ObjectStackClient;
}

// loadVerifier returns the constructor of the official library that verifies Standard Webhooks.
export function loadVerifier(folder) {
  return createRequire(path.join(path.resolve(folder), 'from-here.js'))('standardwebhooks').Webhook;
}

// Wire is a transport for clients and for requests of one's own. It keeps the exchanges of the running check.
export class Wire {
  exchanges = [];

  constructor(base, key) {
    this.base = base.replace(/\/$/, '');
    this.key = key;
    this.fetch = this.fetch.bind(this);
  }

  async fetch(url, init = {}) {
    const answer = await fetch(url, init);
    const text = await answer.clone().text();
    this.exchanges.push({
      request: `${init.method ?? 'GET'} ${String(url).replace(this.base, '')}`,
      ...(init.body === undefined ? {} : { sent: init.body }),
      status: answer.status,
      headers: Object.fromEntries(answer.headers),
      text,
    });
    return answer;
  }

  // send makes a request without the client: body is text, or a value that becomes JSON; anonymous sends no key.
  async send(method, where, { body, headers, anonymous = false } = {}) {
    const init = { method, headers: { 'Content-Type': 'application/json', ...(anonymous ? {} : { Authorization: `Bearer ${this.key}` }), ...headers } };
    if (body !== undefined) init.body = typeof body === 'string' ? body : JSON.stringify(body);
    const answer = await this.fetch(this.base + where, init);
    const text = this.last.text;
    let json;
    try {
      json = JSON.parse(text);
    } catch {
      json = undefined; // an answer without a JSON body
    }
    return { status: answer.status, headers: answer.headers, text, body: json };
  }

  get last() {
    return this.exchanges.at(-1);
  }
}

// refused waits for a call of the client to fail and compares what it threw. It returns the error.
export async function refused(call, status, code) {
  let thrown;
  try {
    await call();
  } catch (e) {
    thrown = e;
  }
  assert.ok(thrown, `the call was taken, want HTTP ${status} ${code}`);
  assert.deepEqual([thrown.httpStatus, thrown.code], [status, code], thrown.message);
  assert.ok(thrown.message, 'the error has a message');
  return thrown;
}

// eventually asks until look returns something other than undefined, false or null.
export async function eventually(what, look, patience = 15000) {
  const until = Date.now() + patience;
  for (;;) {
    const seen = await look();
    if (seen) return seen;
    if (Date.now() > until) throw new Error(`did not happen within ${patience} ms: ${what}`);
    await new Promise((wake) => setTimeout(wake, 50));
  }
}

// run runs the checks of groups one after the other and returns how many passed, and the names of those that failed and of all. A group is a function
// that gets ({check, ...world}) and calls check(name, fn) for each; a check's failure does not end its group.
export async function run(groups, world, print = console.log) {
  const count = { passed: 0, failed: [], names: [] };
  for (const [group, define] of groups) {
    const check = async (name, fn) => {
      world.wire.exchanges = [];
      count.names.push(`${group}: ${name}`);
      try {
        await fn();
        count.passed++;
        print(`ok    ${group}: ${name}`);
      } catch (e) {
        count.failed.push(`${group}: ${name}`);
        print(`FAIL  ${group}: ${name}\n      ${String(e.message).replaceAll('\n', '\n      ')}`);
        for (const x of world.wire.exchanges.slice(-3)) print(`      ${x.request} ${x.sent ?? ''}\n      -> ${x.status} ${x.text.slice(0, 1000)}`);
      }
    };
    try {
      await define({ ...world, check });
    } catch (e) {
      count.failed.push(`${group}: (outside of a check)`);
      print(`FAIL  ${group}: outside of a check\n      ${e.stack}`);
    }
  }
  return count;
}
