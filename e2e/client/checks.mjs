#!/usr/bin/env node
// Drives a running host with the official @objectstack/client and compares every answer.
//
//   HOST_URL=http://127.0.0.1:8080 HOST_KEY=osk_… CLIENT_ROOT=<folder with node_modules> node checks.mjs [group…]
//
// HOST_EMAIL and HOST_PASSWORD sign a user in who may do everything. The key needs the scope admin; the host has to serve examples/objects and to be allowed to call 127.0.0.1, where
// the checks' own receiver listens. Records that the checks make have names of their own per run, so that a host may
// be checked more than once. scripts/conformance does all of this.
import { loadClient, loadVerifier, run, Wire } from './harness.mjs';
import { Receiver } from './receiver.mjs';
import calls, { calls as callsDue } from './calls/index.mjs';
import automation from './groups/automation.mjs';
import bulk from './groups/bulk.mjs';
import data from './groups/data.mjs';
import discovery from './groups/discovery.mjs';
import errors from './groups/errors.mjs';
import meta from './groups/meta.mjs';
import query from './groups/query.mjs';
import webhooks from './groups/webhooks.mjs';

const all = { discovery, meta, data, query, bulk, errors, webhooks, automation, calls };
const { HOST_URL: base, HOST_KEY: key, HOST_EMAIL: email, HOST_PASSWORD: password, CLIENT_ROOT: root } = process.env;
const chosen = process.argv.slice(2);
if (!base || !key || !email || !password || !root || chosen.some((name) => !all[name])) {
  console.error(`usage: HOST_URL=… HOST_KEY=… HOST_EMAIL=… HOST_PASSWORD=… CLIENT_ROOT=… node checks.mjs [${Object.keys(all).join('|')}]…`);
  process.exit(2);
}

const Client = await loadClient(root);
const wire = new Wire(base, key);
const silent = Object.fromEntries(['trace', 'debug', 'info', 'log', 'warn', 'error', 'fatal'].map((level) => [level, () => {}]));
silent.child = () => silent;
// newClient makes a client with the key, or without one: newClient({token: undefined}).
const newClient = (options = {}) => new Client({ baseUrl: wire.base, token: key, fetch: wire.fetch, logger: silent, ...options });
const receiver = await Receiver.listen();
const user = newClient({ token: undefined });
user.credentials = { email, password };
const world = {
  wire, receiver, newClient, user, client: newClient(),
  object: 'account', StandardWebhook: loadVerifier(root),
  // tag is in the names of this run's records; digits only, so that a search for a letter finds none of them by it.
  tag: String(Date.now() % 1e9),
};

const groups = Object.entries(all).filter(([name]) => chosen.length === 0 || chosen.includes(name));
const { passed, failed, names } = await run(groups, world);
const called = new Set(names.filter((name) => name.startsWith('calls: '))).size;
if (groups.some(([name]) => name === 'calls') && called !== callsDue) {
  console.log(`FAIL  calls: ${called} calls of the protocol were checked, ${callsDue} are due`);
  failed.push('calls: (their number)');
}
receiver.close();
console.log(`client: ${passed} checks passed, ${failed.length} failed`);
process.exitCode = failed.length === 0 && passed > 0 ? 0 : 1;
