// SPDX-License-Identifier: Apache-2.0
// The subcommand fetch: it downloads a model from the hub to a volume and serves its progress.
#include <unistd.h>
#include <cmath>
#include <csignal>
#include <fstream>
#include <future>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/signals.h"
#include "base/transfer.h"
#include "contract/fetch_report.h"
#include "contract/termination.h"
#include "contract/worker_arguments.h"
#include "worker/base/error.h"
#include "worker/cli/hub_options.h"
#include "worker/cli/options.h"
#include "worker/hub/fetch.h"
#include "worker/server/http/http.h"
#include "worker/server/http/router.h"

#include "base/log.h"

namespace pm::cli {

namespace {

using nlohmann::json;

struct FetchCommand {
  HubOptions hub;
  std::string model, cache, termination_message, host = "0.0.0.0";
  int connections = 4, stall_timeout = 600, admin_port = 0, lease = 30;
  bool json = false;
};

FetchReport report_of(const hub::Repository& repository, const hub::Progress::View& view) {
  FetchReport out{.state = view.state,
                  .model = repository.id,
                  .revision = repository.revision,
                  .commit = view.commit,
                  .fetched_bytes = view.fetched,
                  .total_bytes = view.total,
                  .received_bytes = view.received,
                  .bytes_per_second = std::llround(view.bytes_per_second),
                  .files = view.files,
                  .files_done = view.files_done,
                  .retries = view.retries,
                  .refetched = view.refetched,
                  .waits_for = view.waits_for};
  if (view.error) {
    out.reason = name_of(view.error->reason);
    out.message = view.error->message;
  }
  return out;
}

std::string metrics_text(const hub::Progress::View& view) {
  std::string out;
  const auto add = [&](const char* name, const char* type, const char* help, int64_t value) {
    const std::string whole = std::string("parallelmodel_fetch_") + name;
    out += "# HELP " + whole + " " + help + "\n# TYPE " + whole + " " + type + "\n" + whole + " " +
           std::to_string(value) + "\n";
  };
  add("present_bytes", "gauge", "Bytes of the required files that are on the volume.", view.fetched);
  add("needed_bytes", "gauge", "Bytes of the required files.", view.total);
  add("received_bytes_total", "counter", "Bytes received over the network.", view.received);
  add("received_bytes_per_second", "gauge", "Bytes received per second over the last ten seconds.",
      std::llround(view.bytes_per_second));
  add("retries_total", "counter", "Requests retried after an error of the hub or a lost connection.", view.retries);
  add("refetched_files_total", "counter", "Files downloaded again because of a wrong checksum.", view.refetched);
  return out;
}

/// Serves /status, /metrics, /live and /ready while a download runs.
class FetchAdminServer {
 public:
  FetchAdminServer(const FetchCommand& command, const hub::Repository& repository, const hub::Progress& progress)
      : http_({.host = command.host,
               .port = command.admin_port,
               .connections = 8,
               .waiting_connections = 8,
               .id_prefix = "admin"},
              std::to_string(::getpid()), [this](const server::http::Request& request) {
                return router_.route(request, std::make_shared<server::AccessLogEntry>());
              }) {
    const auto body = [](const json& value) {
      server::http::Response response;
      response.body = value.dump(-1, ' ', false, json::error_handler_t::replace);
      return response;
    };
    router_.add("GET", "/status", [&, body](const server::RoutedRequest&) {
      return body(to_json(report_of(repository, progress.view())));
    });
    for (const char* path : {"/live", "/ready"})
      router_.add("GET", path, [body](const server::RoutedRequest&) { return body({{"fetching", true}}); });
    router_.add("GET", "/metrics", [&](const server::RoutedRequest&) {
      server::http::Response response;
      response.content_type = "text/plain; version=0.0.4; charset=utf-8";
      response.body = metrics_text(progress.view());
      return response;
    });
    http_.start();
  }

 private:
  server::Router router_;
  server::http::Server http_;  ///< last: its threads use the router
};

/// Starts a thread that waits for SIGTERM and SIGINT, and logs the progress every ten seconds. A handler is needed
/// because the kernel does not deliver signals without a handler to PID 1.
std::jthread watch(std::stop_source& stop, const hub::Progress& progress) {
  const sigset_t set = base::block_signals({SIGTERM, SIGINT});
  return std::jthread([set, &stop, &progress](std::stop_token ended) {
    int64_t logged = -1;
    for (int moment = 1; !ended.stop_requested(); ++moment) {
      const timespec time{0, 100'000'000};
      if (sigtimedwait(&set, nullptr, &time) > 0) stop.request_stop();
      if (moment % 100 != 0) continue;
      const auto view = progress.view();
      if (view.fetched == logged) continue;
      logged = view.fetched;
      LOG(INFO) << view.state << ": " << base::to_text({view.fetched, view.total, view.bytes_per_second}) << ", "
                << view.files_done << " of " << view.files << " files";
    }
  });
}

int run(const FetchCommand& command) {
  const auto write_termination_message = [&](const std::string& message) {
    if (!command.termination_message.empty()) std::ofstream(command.termination_message) << message;
  };
  hub::Progress progress;
  std::stop_source stop;
  const std::jthread watcher = watch(stop, progress);
  try {
    const hub::Repository repository = hub::repository_of(command.model, command.hub.revision);
    hub::FetchOptions options{.access = command.hub.access(),
                              .cache = command.cache,
                              .connections = command.connections,
                              .stall_timeout = std::chrono::seconds(command.stall_timeout)};
    options.lock.lease = std::chrono::seconds(command.lease);
    options.lock.beat = options.lock.lease / 6;
    std::optional<FetchAdminServer> admin_server;
    if (command.admin_port > 0) admin_server.emplace(command, repository, progress);
    const hub::Fetched fetched = hub::fetch(repository, options, progress, stop.get_token());
    write_termination_message(
        json{{"revision", fetched.commit}, {"bytes", fetched.bytes}, {"files", fetched.files}}.dump());
    if (command.json)
      std::cout << json{{"revision", fetched.commit},
                        {"folder", fetched.snapshot.string()},
                        {"bytes", fetched.bytes},
                        {"files", fetched.files},
                        {"receivedBytes", progress.view().received},
                        {"retries", progress.view().retries},
                        {"refetched", progress.view().refetched}}
                       .dump()
                << "\n";
    else
      std::cout << fetched.snapshot.string() << "\n";
    return 0;
  } catch (const Error& error) {
    write_termination_message(to_text({.reason = name_of(error.reason), .message = error.what()}, max_refusal_bytes));
    throw;
  }
}

}  // namespace

void add_fetch(CLI::App& app, Program& program) {
  auto* command = app.add_subcommand(
      subcommand::fetch,
      "Downloads the files that a worker needs from the hub to a volume, and prints the checkpoint folder");
  auto options = std::make_shared<FetchCommand>();
  command->add_option(flag::model.name, options->model, "hf://ORG/NAME or hf://ORG/NAME@REVISION")->required();
  options->hub.add_to(*command);
  command
      ->add_option(
          flag::cache.name, options->cache,
          "Cache folder on the volume, in the layout of huggingface_hub; only one download at a time writes to it")
      ->required();
  command->add_option("--connections", options->connections, "Files to download concurrently")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  command
      ->add_option("--stall-timeout", options->stall_timeout,
                   "Seconds without a received byte, retries included, after which the download fails")
      ->capture_default_str()
      ->check(CLI::Range(0, 86400));
  command
      ->add_option("--lease", options->lease,
                   "Seconds without a heartbeat after which another download's lock is taken over")
      ->capture_default_str()
      ->check(CLI::Range(1, 3600));
  command->add_option("--host", options->host, "Address to listen on")->capture_default_str();
  command->add_option(flag::admin_port.name, options->admin_port, "Port of /status and /metrics (default: none)")
      ->check(CLI::Range(0, 65535));
  command->add_option(flag::termination_message.name, options->termination_message,
                      "Also write the outcome as JSON to this file");
  command->add_flag("--json", options->json, "Print the outcome as JSON");
  command->callback([options, &program] { program.code = run(*options); });
}

}  // namespace pm::cli
