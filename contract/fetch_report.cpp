// SPDX-License-Identifier: Apache-2.0
#include "contract/fetch_report.h"

#include <nlohmann/json.hpp>

#include "contract/untrusted_object.h"

namespace pm {

using nlohmann::json;

json to_json(const FetchReport& report) {
  json out{{"state", report.state},
           {"model", report.model},
           {"revision", report.revision},
           {"commit", report.commit},
           {"fetchedBytes", report.fetched_bytes},
           {"totalBytes", report.total_bytes},
           {"receivedBytes", report.received_bytes},
           {"bytesPerSecond", report.bytes_per_second},
           {"files", report.files},
           {"filesDone", report.files_done},
           {"retries", report.retries},
           {"refetched", report.refetched}};
  if (!report.waits_for.empty()) out["waitsFor"] = report.waits_for;
  if (!report.reason.empty())
    out["lastError"] = {{"reason", report.reason}, {"message", report.message.substr(0, 1024)}};
  return out;
}

std::optional<FetchReport> fetch_report_from_json(const json& value) {
  const UntrustedObject fields(value);
  FetchReport out{.state = fields.text("state"),
                  .model = fields.text("model"),
                  .revision = fields.text("revision"),
                  .commit = fields.text("commit"),
                  .fetched_bytes = fields.bytes("fetchedBytes"),
                  .total_bytes = fields.bytes("totalBytes"),
                  .received_bytes = fields.bytes("receivedBytes"),
                  .bytes_per_second = fields.bytes("bytesPerSecond"),
                  .files = fields.bytes("files"),
                  .files_done = fields.bytes("filesDone"),
                  .retries = fields.bytes("retries"),
                  .refetched = fields.bytes("refetched"),
                  .waits_for = fields.text("waitsFor")};
  if (out.state.empty()) return std::nullopt;
  if (const auto error = fields.object("lastError")) {
    out.reason = error->text("reason");
    out.message = error->text("message");
  }
  return out;
}

}  // namespace pm
