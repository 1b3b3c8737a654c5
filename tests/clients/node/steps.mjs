// SPDX-License-Identifier: Apache-2.0
// Runs the steps of a client and prints what each returned, or how it failed, as one line of JSON.
import { subscribe } from "node:diagnostics_channel";

const elsewhere = new Set();

/** Each step takes the server's address and the model's name. */
export async function run(...steps) {
  const [url, model] = process.argv.slice(2);
  subscribe("undici:request:create", ({ request }) => {
    if (String(request.origin) !== url) elsewhere.add(String(request.origin));
  });
  const results = {};
  for (const step of steps) {
    try {
      results[step.name] = { value: await step(url, model) };
    } catch (error) {
      results[step.name] = { error: String(error.stack ?? error) };
    }
  }
  results.elsewhere = { value: [...elsewhere] };
  console.log(JSON.stringify(results));
  process.exit(0);
}
