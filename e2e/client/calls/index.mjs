// One named check per call of the wire protocol, made by a client that has signed in as a user. What is checked here is
// that the call works as the protocol has it; the groups beside look at each in depth.
import automation from './automation.mjs';
import data from './data.mjs';
import errors from './errors.mjs';
import session from './session.mjs';
import surroundings from './surroundings.mjs';
import webhooks from './webhooks.mjs';

// calls is how many there are: a check that is lost by mistake fails the run.
export const calls = 98;

// The last ones of session and data end what the others work with.
export default async function (world) {
  const state = {};
  const all = { ...world, state };
  const signOut = await session(all);
  const cleanUp = await data(all);
  await errors(all);
  await automation(all);
  await webhooks(all);
  await cleanUp();
  await surroundings(all);
  await signOut();
}
