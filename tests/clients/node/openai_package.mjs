// SPDX-License-Identifier: Apache-2.0
// OpenAI's package for Node: plain calls, its helpers for streams, for tools and for schemas.
import OpenAI from "openai";
import { zodFunction, zodResponseFormat, zodResponsesFunction, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { run } from "./steps.mjs";

const messages = [
  { role: "developer", content: "Be brief." },
  { role: "user", content: "Will it rain?" },
];
const place = z.object({
  city: z.enum(["Zürich", "日本", "a b"]),
  days: z.number().int().min(0).max(99),
  note: z.string().nullable(),
});
const verdict = z.object({ rain: z.boolean(), places: z.array(z.enum(["Zürich", "日本"])) });
const named = { type: "function", function: { name: "weather" } };

const client = (url) => new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });

function weather(calls) {
  return zodFunction({
    name: "weather",
    description: "Tells the weather.",
    parameters: place,
    function: (given) => {
      calls.push(given);
      return { rain: true };
    },
  });
}

async function chat_plain(url, model) {
  const answer = await client(url).chat.completions.create({ model, messages, max_completion_tokens: 600 });
  const { data } = await client(url).models.list();
  return { text: answer.choices[0].message.content, usage: answer.usage, models: data.map((one) => one.id) };
}

async function chat_iterated(url, model) {
  const body = { model, messages, max_completion_tokens: 600, stream: true, stream_options: { include_usage: true } };
  let [text, usage, finish] = ["", null, null];
  for await (const chunk of await client(url).chat.completions.create(body)) {
    text += chunk.choices[0]?.delta.content ?? "";
    finish = chunk.choices[0]?.finish_reason ?? finish;
    usage = chunk.usage ?? usage;
  }
  return { text, usage, finish };
}

async function chat_stream(url, model) {
  const stream = client(url).chat.completions.stream({ model, messages, max_completion_tokens: 600 });
  let deltas = "";
  stream.on("content", (delta) => (deltas += delta));
  const final = await stream.finalChatCompletion();
  return { deltas, text: final.choices[0].message.content, finish: final.choices[0].finish_reason };
}

async function chat_stream_of_a_call(url, model) {
  const tools = [weather([])];
  const stream = client(url).chat.completions.stream({
    model, messages, tools, tool_choice: "required", max_completion_tokens: 600,
  });
  const done = [];
  stream.on("tool_calls.function.arguments.done", (event) => done.push([event.name, event.parsed_arguments]));
  const final = await stream.finalChatCompletion();
  const calls = final.choices[0].message.tool_calls.map((one) => [one.function.name, one.function.parsed_arguments]);
  return { done, calls, finish: final.choices[0].finish_reason };
}

/** The demanded call is made, and its result ends the run. */
async function chat_run_tools(url, model) {
  const calls = [];
  const runner = client(url).chat.completions.runTools({
    model, messages, tools: [weather(calls)], tool_choice: named, max_completion_tokens: 600,
  });
  const result = await runner.finalFunctionToolCallResult();
  return { calls, result, roles: runner.messages.map((one) => one.role) };
}

/** Results go back to the server, which has to call again. */
async function chat_run_tools_streamed(url, model) {
  const calls = [];
  const runner = client(url).chat.completions.runTools(
    { model, messages, tools: [weather(calls)], tool_choice: "required", stream: true, max_completion_tokens: 600 },
    { maxChatCompletions: 2 },
  );
  await runner.done();
  return { calls, roles: runner.messages.map((one) => one.role) };
}

async function chat_parsed(url, model) {
  const answer = await client(url).chat.completions.parse({
    model, messages, response_format: zodResponseFormat(verdict, "verdict"), max_completion_tokens: 600,
  });
  return answer.choices[0].message.parsed;
}

async function completions_iterated(url, model) {
  let text = "";
  const body = { model, prompt: "the cat", max_tokens: 12, stream: true };
  for await (const chunk of await client(url).completions.create(body)) text += chunk.choices[0]?.text ?? "";
  return text;
}

async function embeddings(url, model) {
  const { data } = await client(url).embeddings.create({ model, input: ["the cat", "a dog"] });
  return data.map((one) => one.embedding.length);
}

async function responses_stream(url, model) {
  const stream = client(url).responses.stream({ model, input: messages, max_output_tokens: 600 });
  let deltas = "";
  stream.on("response.output_text.delta", (event) => (deltas += event.delta));
  const final = await stream.finalResponse();
  return { deltas, text: final.output_text, status: final.status, usage: final.usage };
}

/** A demanded call, streamed; its result; the answer to it. */
async function responses_call(url, model) {
  const tools = [zodResponsesFunction({ name: "weather", description: "Tells the weather.", parameters: place })];
  const body = { model, tools, store: false, max_output_tokens: 600 };
  const stream = client(url).responses.stream({ ...body, input: messages, tool_choice: "required" });
  let deltas = "";
  stream.on("response.function_call_arguments.delta", (event) => (deltas += event.delta));
  const final = await stream.finalResponse();
  const calls = final.output.filter((one) => one.type === "function_call");
  const results = calls.map((one) => ({ type: "function_call_output", call_id: one.call_id, output: "rain" }));
  const items = final.output.map(({ parsed_arguments, ...item }) => item);
  const answer = await client(url).responses.create({
    ...body, input: [...messages, ...items, ...results], tool_choice: "none",
  });
  return { calls: calls.map((one) => [one.name, one.parsed_arguments]), deltas, arguments: calls[0].arguments,
    answer: answer.output_text };
}

async function responses_parsed(url, model) {
  const answer = await client(url).responses.parse({
    model, input: messages, text: { format: zodTextFormat(verdict, "verdict") }, max_output_tokens: 600,
  });
  return answer.output_parsed;
}

async function refused(url, model) {
  try {
    await client(url).chat.completions.create({ model: "other", messages });
  } catch (error) {
    return { name: error.constructor.name, status: error.status, code: error.code, id: error.requestID };
  }
}

await run(
  chat_plain, chat_iterated, chat_stream, chat_stream_of_a_call, chat_run_tools, chat_run_tools_streamed, chat_parsed,
  completions_iterated, embeddings, responses_stream, responses_call, responses_parsed, refused,
);
