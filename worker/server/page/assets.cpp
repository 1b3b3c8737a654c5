// SPDX-License-Identifier: Apache-2.0
#include "worker/server/page/assets.h"

namespace pm::server {

const std::string_view page_style = R"css(
:root{color-scheme:light dark;--line:#c9c9c9;--soft:#f4f4f4}
@media(prefers-color-scheme:dark){:root{--line:#4a4d52;--soft:#26282c}}
body{font:16px/1.5 sans-serif;max-width:64em;margin:1.5em auto;padding:0 1em}
h1{font-size:1.5em;margin:0}h2{font-size:1.15em;margin:1.6em 0 .4em;border-top:1px solid var(--line);padding-top:.8em}
.plan{overflow-x:auto}table{border-collapse:collapse}
th,td{padding:.2em .8em .2em 0;text-align:left;vertical-align:top}
#now{display:flex;flex-wrap:wrap;gap:.6em 2em;margin:0}dt{font-size:.85em}
dd{margin:0;font-size:1.3em;font-variant-numeric:tabular-nums}
textarea,select{width:100%;box-sizing:border-box;font:inherit}textarea{font-family:monospace;min-height:4em}
output{display:block;white-space:pre-wrap;background:var(--soft);padding:.6em;min-height:3em;margin-top:.6em}
button{font:inherit;padding:.3em 1.2em;margin-top:.4em}:focus-visible{outline:3px solid #3568b0;outline-offset:2px}
code{background:var(--soft)}
)css";

// Every text of a reply reaches the page as text, never as markup.
const std::string_view page_script = R"js(
const $ = id => document.getElementById(id);
const example = () => { $('body').value = $('route').selectedOptions[0].dataset.example; };
let running = null, key = '';
const withKey = headers => key ? {...headers, Authorization: 'Bearer ' + key} : headers;

function textOf(event) {
  const choice = (event.choices || [])[0] || {};
  return choice.text || (choice.delta || {}).content || '';
}

async function readStream(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith('data: ') || line === 'data: [DONE]') continue;
      const event = JSON.parse(line.slice(6));
      $('answer').textContent += event.error ? event.error.message : textOf(event);
    }
  }
}

async function ask(event) {
  event.preventDefault();
  if (running) return running.abort();
  running = new AbortController();
  const answer = $('answer');
  $('send').textContent = 'Stop';
  answer.textContent = '';
  try {
    const reply = await fetch($('route').value, {method: 'POST', signal: running.signal, body: $('body').value,
                                                 headers: withKey({'Content-Type': 'application/json'})});
    if ((reply.headers.get('Content-Type') || '').startsWith('text/event-stream')) await readStream(reply);
    else answer.textContent = JSON.stringify(await reply.json(), null, 2);
  } catch (error) {
    if (error.name !== 'AbortError') answer.textContent = 'The request failed: ' + error.message;
  } finally {
    running = null;
    $('send').textContent = 'Send';
  }
}

async function currentPage() {
  const reply = await fetch('/', {headers: withKey({Accept: 'text/html'})});
  return {open: reply.ok, page: new DOMParser().parseFromString(await reply.text(), 'text/html')};
}

async function renew() {
  try {
    const {page} = await currentPage();
    for (const id of ['state', 'now', 'drawing']) {
      const part = page.getElementById(id);
      if (part) $(id).replaceWith(part);
    }
  } catch (error) {
    $('state').textContent = 'not reached: ' + error.message;
  }
}

async function unlock(event) {
  event.preventDefault();
  key = $('key').value.trim();
  try {
    const {open, page} = await currentPage();
    if (!open) return $('refusal').textContent = 'The server does not know this key.';
    document.title = page.title;
    document.body.replaceWith(page.body);
    start();
  } catch (error) {
    $('refusal').textContent = 'The request failed: ' + error.message;
  }
}

function start() {
  if ($('unlock')) return $('unlock').addEventListener('submit', unlock);
  setInterval(() => { if (!document.hidden) renew(); }, 2000);
  if (!$('ask')) return;
  $('route').addEventListener('change', example);
  $('ask').addEventListener('submit', ask);
  $('body').addEventListener('keydown', event => {
    if (event.key === 'Enter' && event.ctrlKey) $('ask').requestSubmit();
  });
  $('ask').hidden = false;
  example();
}
start();
)js";

}  // namespace pm::server
