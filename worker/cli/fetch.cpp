// The verb fetch: brings a model from the hub to a volume and tells how far it is.
#include <csignal>
#include <fstream>
#include <future>
#include <iostream>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "worker/base/error.h"
#include "worker/cli/hub.h"
#include "worker/cli/options.h"
#include "worker/hub/fetch.h"
#include "worker/server/http.h"
#include "worker/server/router.h"
#include "worker/base/log.h"

namespace pm::cli {

namespace {

using nlohmann::json;

struct FetchVerb {
  HubOptions hub;
  std::string model, cache, termination_message, host = "0.0.0.0";
  int connections = 4, patience = 600, ops_port = 0, lease = 30;
  bool json = false;
};

json status_json(const hub::Repository& repository, const hub::Progress::View& view) {
  json out{{"state", view.state}, {"model", repository.id}, {"revision", repository.revision}, {"commit", view.commit}, {"fetchedBytes", view.fetched}, {"totalBytes", view.total},
           {"receivedBytes", view.received}, {"files", view.files}, {"filesDone", view.files_done}, {"retries", view.retries}, {"refetched", view.refetched}};
  if (!view.waits_for.empty()) out["waitsFor"] = view.waits_for;
  if (!view.trouble.reason.empty()) out["trouble"] = {{"reason", view.trouble.reason}, {"message", view.trouble.message.substr(0, 1024)}};
  return out;
}

std::string metrics_text(const hub::Progress::View& view) {
  std::string out;
  const auto add = [&](const char* name, const char* type, const char* help, int64_t value) {
    const std::string whole = std::string("parallelmodel_fetch_") + name;
    out += "# HELP " + whole + " " + help + "\n# TYPE " + whole + " " + type + "\n" + whole + " " + std::to_string(value) + "\n";
  };
  add("present_bytes", "gauge", "Bytes of the needed files that are on the volume.", view.fetched);
  add("needed_bytes", "gauge", "Bytes of the needed files.", view.total);
  add("received_bytes_total", "counter", "Bytes that came over the network.", view.received);
  add("retries_total", "counter", "Requests that were made again after the hub failed or broke off.", view.retries);
  add("refetched_files_total", "counter", "Files that were fetched anew because their checksum was wrong.", view.refetched);
  return out;
}

/// /status /metrics /live /ready of a download, for as long as it runs.
class FetchOps {
 public:
  FetchOps(const FetchVerb& verb, const hub::Repository& repository, const hub::Progress& progress)
      : http_({.host = verb.host, .port = verb.ops_port, .connections = 8, .waiting_connections = 8, .id_prefix = "ops"}, std::to_string(::getpid()), [this](const server::http::Request& request) {
          return router_.route(request, std::make_shared<server::Access>());
        }) {
    const auto body = [](const json& value) {
      server::http::Response response;
      response.body = value.dump(-1, ' ', false, json::error_handler_t::replace);
      return response;
    };
    router_.add("GET", "/status", [&, body](const server::Call&) { return body(status_json(repository, progress.view())); });
    for (const char* path : {"/live", "/ready"}) router_.add("GET", path, [body](const server::Call&) { return body({{"fetching", true}}); });
    router_.add("GET", "/metrics", [&](const server::Call&) {
      server::http::Response response;
      response.content_type = "text/plain; version=0.0.4; charset=utf-8";
      response.body = metrics_text(progress.view());
      return response;
    });
    http_.start();
  }

 private:
  server::Router router_;
  server::http::Server http_;           ///< last: its threads use the router
};

/// Also as PID 1, which the kernel spares signals without a handler: a thread of its own waits for SIGTERM and SIGINT, and says every ten seconds how far it is.
std::jthread watch(std::stop_source& stop, const hub::Progress& progress) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return std::jthread([set, &stop, &progress](std::stop_token ended) {
    int64_t told = -1;
    for (int moment = 1; !ended.stop_requested(); ++moment) {
      const timespec time{0, 100'000'000};
      if (sigtimedwait(&set, nullptr, &time) > 0) stop.request_stop();
      if (moment % 100 != 0) continue;
      const auto view = progress.view();
      if (view.fetched == told) continue;
      told = view.fetched;
      LOG(INFO) << view.state << ": " << hub::size_text(view.fetched) << " of " << hub::size_text(view.total) << ", " << view.files_done << " of " << view.files << " files";
    }
  });
}

int run(const FetchVerb& verb) {
  const auto tell = [&](const json& message) {
    if (!verb.termination_message.empty()) std::ofstream(verb.termination_message) << message.dump(-1, ' ', false, json::error_handler_t::replace);
  };
  hub::Progress progress;
  std::stop_source stop;
  const std::jthread watcher = watch(stop, progress);
  try {
    const hub::Repository repository = hub::repository_of(verb.model, verb.hub.revision);
    hub::FetchOptions options{.access = verb.hub.access(), .cache = verb.cache, .connections = verb.connections, .patience = std::chrono::seconds(verb.patience)};
    options.lock.lease = std::chrono::seconds(verb.lease);
    options.lock.beat = options.lock.lease / 6;
    std::optional<FetchOps> ops;
    if (verb.ops_port > 0) ops.emplace(verb, repository, progress);
    const hub::Fetched fetched = hub::fetch(repository, options, progress, stop.get_token());
    tell({{"revision", fetched.commit}, {"bytes", fetched.bytes}, {"files", fetched.files}});
    if (verb.json) std::cout << json{{"revision", fetched.commit}, {"folder", fetched.snapshot.string()}, {"bytes", fetched.bytes}, {"files", fetched.files},
                                     {"receivedBytes", progress.view().received}, {"retries", progress.view().retries}, {"refetched", progress.view().refetched}}.dump() << "\n";
    else std::cout << fetched.snapshot.string() << "\n";
    return 0;
  } catch (const Error& error) {
    tell({{"reason", error.reason}, {"message", std::string(error.what()).substr(0, 2048)}});
    throw;
  }
}

}  // namespace

void add_fetch(CLI::App& app, Program& program) {
  auto* verb = app.add_subcommand("fetch", "Downloads what a worker needs of a model on the hub to a volume, and prints the folder of the checkpoint");
  auto options = std::make_shared<FetchVerb>();
  verb->add_option("--model", options->model, "hf://ORG/NAME or hf://ORG/NAME@REVISION")->required();
  options->hub.add_to(*verb);
  verb->add_option("--cache", options->cache, "Folder on the volume, laid out as huggingface_hub's cache; one download at a time writes to it")->required();
  verb->add_option("--connections", options->connections, "Files that are fetched at once")->capture_default_str()->check(CLI::Range(1, 64));
  verb->add_option("--patience", options->patience, "Seconds without a byte, with retries all the while, after which it is given up")->capture_default_str()->check(CLI::Range(0, 86400));
  verb->add_option("--lease", options->lease, "Seconds after which another download that shows no life is taken for dead")->capture_default_str()->check(CLI::Range(1, 3600));
  verb->add_option("--host", options->host, "Address to listen on")->capture_default_str();
  verb->add_option("--ops-port", options->ops_port, "Port of /status and /metrics; absent: none")->check(CLI::Range(0, 65535));
  verb->add_option("--termination-message", options->termination_message, "Also write the outcome as JSON to this file");
  verb->add_flag("--json", options->json, "The outcome as JSON");
  verb->callback([options, &program] { program.code = run(*options); });
}

}  // namespace pm::cli
