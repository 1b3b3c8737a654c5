// The verb serve: the launcher with the ops port, and per rank its share of the model; rank 0 also has the scheduler and the API.
#include <cmath>
#include <csignal>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "planner/strategies/layout.h"
#include "worker/base/error.h"
#include "worker/cli/jobs.h"
#include "worker/cli/processes.h"
#include "worker/engine/lanes.h"
#include "worker/engine/measure.h"
#include "worker/launch/health.h"
#include "worker/server/api_server.h"
#include "worker/server/generation_defaults.h"
#include "worker/server/ops_server.h"
#include "worker/tokenizer/chat_template.h"
#include "worker/tokenizer/tokenizer.h"
#include "worker/base/log.h"

namespace pm::cli {

namespace {

struct ServeOptions : ModelOptions {
  ProcessOptions process;
  std::string host = "0.0.0.0", name;
  std::string api_keys_folder, certificate, key;
  int port = 8000, ops_port = 8001, drain_seconds = 60;
  std::string rendezvous;
  int64_t max_queue = 256;
};

/// The smallest inputs of a model that does not generate: one token (its end token, where that is what it pools) or as many as its heads need, or one black image.
Arrays probe_inputs(const policy::Model& model) {
  Arrays inputs;
  int64_t tokens = 1;
  for (const policy::Head& head : model.heads) {
    if (head.pool == "last_but_one") tokens = std::max<int64_t>(tokens, 2);
    if (head.spans) tokens = std::max({tokens, head.spans->starts, head.spans->ends});
    if (!head.pairs) continue;
    const policy::Features& features = *model.stack(head.stack)->input.features;
    const int64_t width = features.projection.weight.shape[1];
    inputs[features.input] = {{1, 1, width}, std::vector<float>(static_cast<size_t>(width))};
    inputs[head.pairs->chosen] = {{1, 1}, std::vector<int64_t>{0}};
  }
  for (const policy::Stack& stack : model.stacks) {
    if (stack.input.token) {
      const int64_t id = model.eos.empty() || model.eos[0] >= stack.vocab ? 0 : model.eos[0];
      const std::vector<int64_t> ids(static_cast<size_t>(tokens), id);
      inputs["input_ids"] = model.task == "multiple-choice" ? Array{{1, 1, tokens}, ids} : Array{{1, tokens}, ids};
    } else {
      const std::vector<int64_t>& patch = stack.input.projection->weight.shape;
      const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(stack.positions - stack.input.extra_tokens())))) * patch[2];
      inputs["pixel_values"] = {{1, patch[1], side, side}, std::vector<float>(static_cast<size_t>(patch[1] * side * side))};
    }
  }
  return inputs;
}

/// One token or image through all ranks and back: from here on the group is known to work.
void probe(engine::Group& group, const policy::Model& model) {
  engine::StepMessage message;
  if (!group.leader().executor().generates()) {
    message.forward = engine::ForwardJob{{probe_inputs(model)}, false, false, {}};
    group.run(message);
    return;
  }
  message.entries.push_back({.slot = 0, .anew = true, .tokens = {0}, .blocks = {0}, .want = engine::Want::Best});
  if (models::Model::generator(model).layers[0].cross) {
    message.entries[0].source = {0};
    message.entries[0].source_blocks = {1};
    message.entries[0].source_tokens = 1;
  }
  group.run(message);
  engine::StepMessage after;
  after.freed = {0};
  group.run(after);
}

/// Waits for SIGTERM or SIGINT, or until the engine has failed. True for a signal.
bool wait_for_signal(const engine::Lanes& engine) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  const timespec moment{0, 100'000'000};
  for (;;) {
    if (sigtimedwait(&set, nullptr, &moment) > 0) return true;
    if (engine.failed()) return false;
  }
}

void block_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

/// The last part of the path, also of one that ends in a slash.
std::string name_of_folder(const std::filesystem::path& folder) {
  const std::filesystem::path whole = std::filesystem::absolute(folder).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

/// Sixteen hexadecimal digits that tell one text from another (FNV-1a).
std::string digest(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::ostringstream out;
  out << std::hex << std::setw(16) << std::setfill('0') << hash;
  return out.str();
}

/// One lane's part of what all of them take.
int64_t of_lane(int64_t all, const Plan& plan) { return (all + plan.data - 1) / plan.data; }

int lead(const ServeOptions& options, const Setup& setup, engine::Group& group) {
  const auto board = comm::StatusBoard::open(options.process.segment, static_cast<int>(setup.plan.ranks.size()));
  comm::RankStatus& status = board->rank(0);
  probe(group, setup.model);
  block_signals();   // from here on a SIGTERM drains; before, while nothing is served, it just ends the process
  const engine::Limits limits = limits_of(setup.model, setup.plan, setup.plan.sequence_length, group.kv_blocks(), of_lane(options.max_concurrency, setup.plan), of_lane(options.max_queue, setup.plan));
  const auto steps = std::make_shared<server::StepMetrics>();
  engine::Lanes engine(group, limits, {.after_step = [&](int64_t step, int64_t open) {
    status.steps = step;
    status.open_requests = open;
    engine::show_step(group.leader().executor(), status);
  }, .times = [steps](const engine::StepTimes& times) { steps->observe(times); }});
  const std::filesystem::path folder = setup.checkpoint.folder();
  std::string why;
  const std::optional<Tokenizer> tokenizer = Tokenizer::find(folder, &why);
  if (!tokenizer) LOG(WARNING) << "serving token ids only: " << why;
  server::ApiOptions api;
  api.http.host = options.host;
  api.http.port = options.port;
  api.model = options.name.empty() ? name_of_folder(folder) : options.name;
  api.eos = setup.model.eos;
  api.abilities = server::read_abilities(setup.model, folder);
  api.defaults = server::read_generation_defaults(folder);
  api.decoder_start = setup.model.decoder_start;
  try {
    api.chat_template = ChatTemplate::find(folder);
  } catch (const Error& error) {
    LOG(WARNING) << "serving no conversations: " << error.what();
  }
  api.board = board;
  if (!options.api_keys_folder.empty()) api.keys = std::make_shared<server::ApiKeys>(options.api_keys_folder);
  if (!options.certificate.empty()) api.http.tls = std::make_shared<server::Tls>(options.certificate, options.key);
  api.steps = steps;
  api.collectives = [&communicator = group.leader().executor().communicator()] {
    std::vector<server::Collective> all;
    for (const auto& one : communicator.counts()) all.push_back({one.op, one.calls, one.bytes, one.seconds});
    return all;
  };
  server::ApiServer server(api, engine, tokenizer ? &*tokenizer : nullptr, setup.plan);
  server.start();
  status.state = static_cast<uint32_t>(comm::RankState::Ready);
  if (!wait_for_signal(engine)) {
    engine.fail(engine.failure());   // lanes that still run answer nobody any more
    server.stop();
    throw Error(ErrorKind::RankLost, "CommunicatorAborted", engine.failure());
  }
  LOG(INFO) << "draining for at most " << options.drain_seconds << " s";
  server.drain(std::chrono::seconds(options.drain_seconds));
  server.stop();
  return 0;
}

int launch_group(const ServeOptions& options, const Setup& setup, const Program& program) {
  LauncherOptions launcher;
  launcher.drain_seconds = options.drain_seconds + 10;   // rank 0 keeps the limit itself; this is for one that does not
  std::optional<server::OpsServer> ops;
  launch::Liveness liveness;
  launcher.start_ops = [&](comm::StatusBoard& board) {
    server::OpsOptions ops_options;
    ops_options.http.host = options.host;
    ops_options.http.port = options.ops_port;
    ops_options.board = std::shared_ptr<comm::StatusBoard>(&board, [](comm::StatusBoard*) {});   // the launcher keeps it until stop_ops returns
    ops_options.plan = setup.plan;
    ops_options.incarnation = options.process.nodes.incarnation;
    ops_options.ready = [&board] { return launch::ready(board, std::chrono::steady_clock::now()); };
    ops_options.live = [&board, &liveness] { return liveness.live(board, std::chrono::steady_clock::now()); };
    ops_options.rank0_metrics_port = options.process.nodes.here == 0 ? options.port : 0;
    ops_options.rank0_tls = !options.certificate.empty();
    ops.emplace(std::move(ops_options));
    ops->start();
  };
  launcher.stop_ops = [&](comm::StatusBoard&) { ops.reset(); };
  return launch_ranks(program, options.process, setup, launcher);
}

/// --nodes, --node-rank and --rendezvous, checked against the plan. Throws Error{Usage}.
void read_nodes(ServeOptions& options, const Plan& plan) {
  launch::Nodes& nodes = options.process.nodes;
  const auto refuse = [](const std::string& what) { throw Error(ErrorKind::Usage, "InvalidSizes", what); };
  const int ranks = static_cast<int>(plan.ranks.size());
  if (nodes.here >= nodes.count) refuse("--node-rank " + std::to_string(nodes.here) + " of --nodes " + std::to_string(nodes.count) + "; expected 0 to " + std::to_string(nodes.count - 1));
  if (nodes.count == 1) return;
  if (options.process.plan.empty()) refuse("--nodes " + std::to_string(nodes.count) + " without --plan: every node needs the same plan; write one with `plan --json` and give it to all");
  if (!launch::can_deal(ranks, nodes.count)) refuse("the plan's " + std::to_string(ranks) + " ranks cannot be dealt to " + std::to_string(nodes.count) + " nodes with equal counts, the last at most fewer");
  const size_t colon = options.rendezvous.rfind(':');
  const std::string port = colon == std::string::npos ? "" : options.rendezvous.substr(colon + 1);
  nodes.host = options.rendezvous.substr(0, colon == std::string::npos ? 0 : colon);
  if (nodes.host.size() > 2 && nodes.host.front() == '[' && nodes.host.back() == ']') nodes.host = nodes.host.substr(1, nodes.host.size() - 2);   // an IPv6 address
  const bool digits = !port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == std::string::npos;
  nodes.port = digits ? std::stoi(port) : 0;
  if (nodes.host.empty() || nodes.port < 1 || nodes.port > 65535) refuse("--rendezvous \"" + options.rendezvous + "\" is not HOST:PORT; give node 0's name or address and the port it listens on for the others, e.g. node0:29500");
  nodes.plan = digest(to_json(plan).dump());
}

int serve(ServeOptions& options, const Program& program) {
  // the launcher looks first: files of no use are then a usage error of one process, not a lost rank
  if (!options.api_keys_folder.empty()) server::ApiKeys{options.api_keys_folder};
  if (!options.certificate.empty()) server::Tls(options.certificate, options.key);
  const Setup setup = prepare(options, options.process.plan_file());
  models::Model::check(setup.model);
  read_nodes(options, setup.plan);
  if (!options.process.is_rank()) return launch_group(options, setup, program);
  engine::GroupModel model = setup.group(setup.plan.kv_blocks);
  const int64_t concurrency = of_lane(options.max_concurrency, setup.plan);
  if (model.kv_blocks > 0) model.most_blocks = std::max(model.kv_blocks, concurrency * blocks_per_sequence(setup.model.facts, setup.plan.sequence_length));
  return run_rank(options.process, model, [&](engine::Group& group) { return lead(options, setup, group); });
}

}  // namespace

void add_serve(CLI::App& app, Program& program) {
  auto* verb = app.add_subcommand("serve", "Serves the model over HTTP, one process per rank");
  auto options = std::make_shared<ServeOptions>();
  options->add_to(*verb);
  options->process.add_to(*verb);
  verb->add_option("--host", options->host, "Address to listen on")->capture_default_str();
  verb->add_option("--port", options->port, "Port of the API")->capture_default_str()->check(CLI::Range(0, 65535));
  verb->add_option("--ops-port", options->ops_port, "Port of /live, /ready, /status, /metrics, /memory")->capture_default_str()->check(CLI::Range(0, 65535));
  verb->add_option("--api-keys-dir", options->api_keys_folder, "Folder whose every file holds an API key, as a mounted Secret: requests need one as \"Authorization: Bearer KEY\"; "
                                                               "read again when it changes");
  auto* certificate = verb->add_option("--tls-cert", options->certificate, "PEM file with the certificate and its chain: the API is then served over TLS; read again when it changes");
  auto* key = verb->add_option("--tls-key", options->key, "PEM file with the certificate's key");
  certificate->needs(key);
  key->needs(certificate);
  verb->add_option("--served-model-name", options->name, "Name that clients use; absent: the folder's");
  verb->add_option("--max-queue", options->max_queue, "Requests that may wait")->capture_default_str()->check(CLI::PositiveNumber);
  verb->add_option("--drain-seconds", options->drain_seconds, "Seconds that requests get to finish after SIGTERM")->capture_default_str()->check(CLI::NonNegativeNumber);
  verb->add_option("--incarnation", options->process.nodes.incarnation, "Number of this life of the group, set by the controller")->capture_default_str()->check(CLI::NonNegativeNumber);
  verb->add_option("--nodes", options->process.nodes.count, "Nodes of the group: ranks are dealt to them in order, as equally as whole ranks allow")->capture_default_str()->check(CLI::Range(1, 1024));
  verb->add_option("--node-rank", options->process.nodes.here, "Which of them this is; node 0 has rank 0 and the API")->capture_default_str()->check(CLI::Range(0, 1023));
  verb->add_option("--rendezvous", options->rendezvous, "HOST:PORT where node 0 listens for the others, for groups over several nodes");
  verb->callback([options, &program] { program.code = serve(*options, program); });
}

}  // namespace pm::cli
