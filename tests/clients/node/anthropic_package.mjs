// SPDX-License-Identifier: Apache-2.0
// Anthropic's package for Node: plain calls, its helper for streams, its runner of tools, schemas.
import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";
import { run } from "./steps.mjs";

const messages = [{ role: "user", content: "Will it rain?" }];
const shared = { max_tokens: 600, system: "Be brief.", messages };
const place = z.object({
  city: z.enum(["Zürich", "日本", "a b"]),
  days: z.int().min(0).max(99),
  note: z.string(),
});
const verdict = z.object({ rain: z.boolean(), places: z.array(z.enum(["Zürich", "日本"])) });
const tools = [{ name: "weather", description: "Tells the weather.", input_schema: z.toJSONSchema(place) }];

const client = (url) => new Anthropic({ baseURL: url, apiKey: "none", maxRetries: 0 });
const text = (message) => message.content.filter((one) => one.type === "text").map((one) => one.text).join("");

async function plain(url, model) {
  const answer = await client(url).messages.create({ model, ...shared });
  const { input_tokens } = await client(url).messages.countTokens({ model, system: shared.system, messages });
  return { text: text(answer), stop: answer.stop_reason, usage: answer.usage, input_tokens };
}

async function iterated(url, model) {
  const kinds = [];
  const events = await client(url).messages.create({ model, ...shared, stream: true });
  for await (const event of events) kinds.push(event.type);
  return kinds;
}

async function stream(url, model) {
  let deltas = "";
  const stream = client(url).messages.stream({ model, ...shared }).on("text", (delta) => (deltas += delta));
  const final = await stream.finalMessage();
  return { deltas, text: text(final), stop: final.stop_reason, usage: final.usage };
}

/** A demanded call, streamed; its result; the answer to it. */
async function stream_of_a_call(url, model) {
  const body = { model, ...shared, tools };
  let json = "";
  const stream = client(url).messages.stream({ ...body, tool_choice: { type: "any" } });
  stream.on("inputJson", (delta) => (json += delta));
  const final = await stream.finalMessage();
  const calls = final.content.filter((one) => one.type === "tool_use");
  const content = calls.map((one) => ({ type: "tool_result", tool_use_id: one.id, content: "rain" }));
  const turns = [...messages, { role: "assistant", content: final.content }, { role: "user", content }];
  const answer = await client(url).messages.create({ ...body, messages: turns, tool_choice: { type: "none" } });
  return { calls: calls.map((one) => [one.name, one.input]), json, stop: final.stop_reason, answer: text(answer) };
}

/** Every turn has to call, so that the number of turns ends the run. */
async function tool_runner(url, model) {
  const calls = [];
  const weather = betaZodTool({
    name: "weather",
    description: "Tells the weather.",
    inputSchema: place,
    run: (given) => {
      calls.push(given);
      return "It rains.";
    },
  });
  const runner = client(url).beta.messages.toolRunner({
    model,
    ...shared,
    tools: [weather],
    tool_choice: { type: "tool", name: "weather" },
    stream: true,
    max_iterations: 2,
  });
  const turns = [];
  for await (const stream of runner) {
    const message = await stream.finalMessage();
    turns.push([message.stop_reason, message.usage.input_tokens + message.usage.cache_read_input_tokens]);
  }
  return { calls, turns };
}

async function parsed(url, model) {
  const output_config = { format: zodOutputFormat(verdict) };
  const answer = await client(url).messages.parse({ model, ...shared, output_config });
  return answer.parsed_output;
}

async function refused(url, model) {
  try {
    await client(url).messages.create({ model: "other", ...shared });
  } catch (error) {
    return { name: error.constructor.name, status: error.status, type: error.error.error.type, id: error.requestID };
  }
}

await run(plain, iterated, stream, stream_of_a_call, tool_runner, parsed, refused);
