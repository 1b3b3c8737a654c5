// SPDX-License-Identifier: Apache-2.0
// Test tool of the parity tests: chat_dump FOLDER FILE, where FILE is a list of conversations, prints for each the
// rendered text or the error.
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "worker/base/error.h"
#include "worker/tokenizer/chat_template.h"

using json = nlohmann::ordered_json;  // a template sees keys in the order of the request

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  json out = json::array();
  try {
    const auto chat = pm::ChatTemplate::find(argv[1]);
    if (!chat) {
      std::cout << "null\n";
      return 0;
    }
    for (const json& conversation : json::parse(std::ifstream(argv[2]))) {
      try {
        out.push_back({{"text", chat->render(conversation.dump())}});
      } catch (const pm::Error& error) {
        out.push_back({{"refused", error.what()}});
      }
    }
  } catch (const pm::Error& error) {
    out = {{"unreadable", error.what()}};
  }
  std::cout << out << "\n";
}
