// SPDX-License-Identifier: Apache-2.0
// The subcommand serve: the launcher serves the admin port, every rank loads its shard, and rank 0 also runs the
// scheduler and the API.
#include <csignal>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/digest.h"
#include "base/signals.h"
#include "contract/ports.h"
#include "contract/worker_arguments.h"
#include "planner/draft_plan.h"
#include "planner/strategies/layout.h"
#include "worker/base/error.h"
#include "worker/cli/adapter_options.h"
#include "worker/cli/media_hosts.h"
#include "worker/cli/offline_inference.h"
#include "worker/cli/processes.h"
#include "worker/cli/speculation.h"
#include "worker/engine/ranks/rank_memory.h"
#include "worker/engine/scheduling/data_parallel_engine.h"
#include "worker/launch/health.h"
#include "worker/layers/loader.h"
#include "worker/models/inputs.h"
#include "worker/models/probe_inputs.h"
#include "worker/ops/cpu/machine.h"
#include "worker/ops/linear.h"
#include "worker/policy/resolve.h"
#include "worker/server/api_server.h"
#include "worker/server/generation/generation_defaults.h"
#include "worker/server/monitoring/admin_server.h"
#include "worker/server/retrieval/retrieval_engine.h"
#include "worker/server/serving/adapter_pool.h"
#include "worker/tokenizer/chat_template.h"
#include "worker/tokenizer/entity_tokenizer.h"
#include "worker/tokenizer/tokenizer.h"

#include "base/log.h"

namespace pm::cli {

namespace {

struct ServeOptions : ModelOptions {
  ProcessOptions process;
  SpeculationOptions speculation;
  std::string host = "0.0.0.0";
  std::vector<std::string> names;
  std::vector<std::string> named_adapters;  ///< NAME=FOLDER
  std::string adapter_updates;              ///< folder below which adapters may be loaded later; empty: none
  std::string metrics_names = "both";
  std::string api_keys_folder, certificate, key;
  int port = http_port, admin_port = pm::admin_port, drain_seconds = 60;
  std::string rendezvous;
  int64_t max_queue = 256;
  std::string media_folder;
  std::vector<std::string> media_hosts;
  bool no_page = false, strict_requests = false;
};

/// Runs one token or image through all ranks, which verifies that the replica works before it becomes ready.
void probe(engine::RankGroup& group, const policy::Model& model) {
  engine::StepMessage message;
  if (!group.leader().executor().generation()) {
    message.forward = engine::ForwardJob{{models::probe_inputs(model)}, false, false, {}};
    group.run(message);
    return;
  }
  message.entries.push_back(
      {.slot = 0, .reset_table = true, .tokens = {0}, .blocks = {0}, .output_kind = engine::OutputKind::Argmax});
  if (const policy::Stack* source = models::Model::source_stack(model)) {
    engine::StepEntry& entry = message.entries[0];
    entry.source_tokens = 1;
    if (source->input.reads_media()) {
      entry.source_inputs = models::blank_source(model, 1);
      entry.source_tokens = models::make_source_input(model, entry.source_inputs).batch_rows();
    } else {
      entry.source = {0};
    }
    for (int32_t block = 1; block <= blocks_for(entry.source_tokens); ++block) entry.source_blocks.push_back(block);
  }
  if (Arrays image = models::blank_image(model); !image.empty())
    message.forward = engine::ForwardJob{{std::move(image)}, false, false, {}};
  group.run(message);
  engine::StepMessage after;
  after.freed_slots = {0};
  group.run(after);
}

/// Waits for SIGTERM or SIGINT, or until the engine has failed. Returns true for a signal.
bool wait_for_signal(const engine::DataParallelEngine& engine) {
  const sigset_t set = base::signal_set({SIGTERM, SIGINT});
  const timespec moment{0, 100'000'000};
  for (;;) {
    if (sigtimedwait(&set, nullptr, &moment) > 0) return true;
    if (engine.failed()) return false;
  }
}

/// Returns the last component of the path, also if it ends in a slash.
std::string name_of_folder(const std::filesystem::path& folder) {
  const std::filesystem::path whole = std::filesystem::absolute(folder).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

/// Checks the names of adapters, and reads their folders into the options of the model. Throws Error{Usage}.
void read_adapters(ServeOptions& options) {
  if (!options.adapter_updates.empty()) {
    if (!std::filesystem::is_directory(options.adapter_updates))
      throw Error(Reason::Usage, "--adapter-updates " + options.adapter_updates + " is not a folder");
    options.adapts_any_module = true;
  }
  std::set<std::string> taken(options.names.begin(), options.names.end());
  if (taken.empty()) taken.insert(name_of_folder(options.model));
  for (const std::string& text : options.named_adapters) {
    const auto [name, folder] = named_adapter(text);
    if (!taken.insert(name).second)
      throw Error(Reason::Usage,
                  "--adapter " + text + ": the name " + name + " is given twice; each model has its own");
    options.adapters.push_back(folder);
  }
  const auto given = static_cast<int64_t>(options.named_adapters.size());
  if (options.max_adapters > 0 && options.max_adapters < given)
    throw Error(Reason::Usage, "--max-adapters is " + std::to_string(options.max_adapters) + ", and " +
                                   std::to_string(given) + " adapters are given; raise it");
  if (options.max_adapters == 0 && options.adapter_updates.empty()) options.max_adapters = given;
}

/// Loads the adapters of the options; nullptr: there are none.
std::unique_ptr<server::AdapterPool> make_adapters(const ServeOptions& options, const Setup& setup,
                                                   engine::Engine& engine) {
  if (setup.adapters.slots == 0) return nullptr;
  auto pool = std::make_unique<server::AdapterPool>(engine, setup.model, memory_of(setup.adapters));
  for (const std::string& text : options.named_adapters) {
    const auto [name, folder] = named_adapter(text);
    pool->load(name, folder, folder);
    LOG(INFO) << "adapter " << name << " of " << folder << " is loaded";
  }
  return pool;
}

int lead(const ServeOptions& options, const Setup& setup, std::optional<engine::Speculation> drafter,
         engine::RankGroup& group) {
  const std::filesystem::path folder = setup.checkpoint.folder();
  std::optional<server::Retriever> retriever;  // before the probe, for it refuses a broken index
  if (setup.model.retrieval) retriever.emplace(*setup.model.retrieval, folder);
  const auto status_table = comm::StatusTable::open(options.process.segment, static_cast<int>(setup.plan.ranks.size()));
  comm::RankStatus& status = status_table->rank(0);
  probe(group, setup.model);
  base::block_signals(
      {SIGTERM, SIGINT});  // from here on SIGTERM drains; before, while nothing is served, it terminates the process
  engine::Limits limits = engine_limits(setup.model, setup.plan, setup.plan.sequence_length, group.kv_blocks(),
                                        per_dp_rank(options.max_concurrency, setup.plan.data),
                                        per_dp_rank(options.max_queue, setup.plan.data));
  limits.speculation = speculation_of(options.speculation, options.drafter, setup.model, std::move(drafter));
  if (limits.speculation) {
    const DType precision = setup.plan.precision, compute = compute_type(setup.model.metadata, precision);
    const auto rows = ops::rows_of_equal_bits(setup.device, layers::scalar_type(compute), is_quantized(precision));
    if (rows) limits.speculation->step_rows = *rows;
  }
  if (const std::string text = speculation_text(options.drafter, setup.model); text != "off")
    LOG(INFO) << "speculation: " << text;
  if (retriever && setup.model.retrieval->max_length > setup.plan.sequence_length)
    throw Error(Reason::Usage, "config.json says max_combined_length " +
                                   std::to_string(setup.model.retrieval->max_length) +
                                   ", and the plan's longest input has " + std::to_string(setup.plan.sequence_length) +
                                   " tokens; raise --max-sequence-length, or lower max_combined_length");
  const auto steps = std::make_shared<server::StepMetrics>();
  engine::DataParallelEngine engine(group, limits,
                                    {.after_step =
                                         [&](int64_t step, int64_t open) {
                                           status.steps = step;
                                           status.open_requests = open;
                                           engine::report_step(group.leader().executor(), status);
                                         },
                                     .times = [steps](const engine::StepTimes& times) { steps->observe(times); }});
  std::optional<server::RetrievalEngine> retrieving;
  if (retriever) retrieving.emplace(engine, setup.model, *retriever, request_check(limits));
  std::string why;
  const std::optional<Tokenizer> tokenizer =
      retriever ? retriever->generator_tokenizer() : Tokenizer::find(folder, &why);
  if (!tokenizer) LOG(WARNING) << "no tokenizer; requests must send token ids: " << why;
  server::ApiOptions api;
  api.http.host = options.host;
  api.http.port = options.port;
  const auto pool = make_adapters(options, setup, engine);
  api.names = server::ServedNames(options.names);
  if (api.names.empty()) api.names = {name_of_folder(folder)};
  if (pool) api.names.add(*pool, !options.adapter_updates.empty());
  if (pool) api.adapters = {pool.get(), options.adapter_updates};
  api.eos = setup.model.eos;
  api.capabilities = server::read_capabilities(setup.model, folder);
  api.defaults = server::read_generation_defaults(folder);
  api.decoder_start = setup.model.decoder_start;
  if (retriever) api.prompt_tokenizer = &retriever->question_tokenizer();
  try {
    api.chat_template = ChatTemplate::find(folder);
  } catch (const Error& error) {
    LOG(WARNING) << "no chat template; /v1/chat/completions is refused: " << error.what();
  }
  if (std::string problem; api.chat_template && tokenizer) {
    api.replies = ReplyForm::find(folder, policy::reply_form_name(setup.checkpoint, options.policy), &problem);
    if (!problem.empty())
      LOG(WARNING) << "response_template of tokenizer_config.json is not used, "
                   << (api.replies ? "the form of the model's family is" : "replies are not parsed") << ": " << problem;
  }
  std::optional<EntityTokenizer> entity_tokenizer;
  if (!api.capabilities.entities.empty() && tokenizer) entity_tokenizer.emplace(folder, *tokenizer);
  if (entity_tokenizer) api.entity_tokenizer = &*entity_tokenizer;
  api.status_table = status_table;
  api.page = !options.no_page;
  api.strict_requests = options.strict_requests;
  api.media_folder = options.media_folder;
  if (!options.media_hosts.empty())
    api.fetch_media = [hosts = std::make_shared<const MediaHosts>(options.media_hosts)](const std::string& url) {
      return hosts->fetch(url);
    };
  api.metric_names = server::metric_names_of(options.metrics_names).value();
  api.capacity = {options.max_concurrency, options.max_queue};
  if (!options.api_keys_folder.empty()) api.keys = std::make_shared<server::ApiKeys>(options.api_keys_folder);
  if (!options.certificate.empty()) api.http.tls = std::make_shared<server::Tls>(options.certificate, options.key);
  api.steps = steps;
  api.collectives = [&communicator = group.leader().executor().communicator()] {
    std::vector<server::Collective> all;
    for (const auto& one : communicator.counts()) all.push_back({one.op, one.calls, one.bytes, one.seconds});
    return all;
  };
  server::ApiServer server(api, retrieving ? static_cast<engine::Engine&>(*retrieving) : engine,
                           tokenizer ? &*tokenizer : nullptr, setup.plan);
  server.start();
  status.state = static_cast<uint32_t>(comm::RankState::Ready);
  if (!wait_for_signal(engine)) {
    engine.fail(engine.failure());  // data-parallel ranks that still run must not answer any more
    server.stop();
    throw Error(Reason::CommunicatorAborted, engine.failure());
  }
  LOG(INFO) << "draining for at most " << options.drain_seconds << " s";
  server.drain(std::chrono::seconds(options.drain_seconds));
  server.stop();
  return 0;
}

int launch_group(const ServeOptions& options, const Setup& setup, const Program& program) {
  LauncherOptions launcher;
  launcher.drain_seconds =
      options.drain_seconds + 10;  // rank 0 enforces the limit itself; the launcher only waits a little longer
  std::optional<server::AdminServer> admin_server;
  launch::Liveness liveness;
  launcher.start_admin_server = [&](comm::StatusTable& status_table) {
    server::AdminOptions admin_options;
    admin_options.http.host = options.host;
    admin_options.http.port = options.admin_port;
    admin_options.status_table = std::shared_ptr<comm::StatusTable>(
        &status_table, [](comm::StatusTable*) {});  // the launcher owns the table until stop_admin_server returns
    admin_options.plan = setup.plan;
    admin_options.replica_generation = options.process.nodes.replica_generation;
    if (setup.device == at::kCPU) admin_options.cpu_kernels = ops::cpu_kernels();
    admin_options.speculation = speculation_text(options.drafter, setup.model);
    admin_options.ready = [&status_table] { return launch::ready(status_table, std::chrono::steady_clock::now()); };
    admin_options.live = [&status_table, &liveness] {
      return liveness.live(status_table, std::chrono::steady_clock::now());
    };
    admin_options.rank0_metrics_port = options.process.nodes.index == 0 ? options.port : 0;
    admin_options.rank0_tls = !options.certificate.empty();
    admin_server.emplace(std::move(admin_options));
    admin_server->start();
  };
  launcher.stop_admin_server = [&](comm::StatusTable&) { admin_server.reset(); };
  return launch_ranks(program, options.process, setup, launcher);
}

/// Parses --nodes, --node-rank and --rendezvous and checks them against the plan. Throws Error{Usage}.
void read_nodes(ServeOptions& options, const Plan& plan) {
  launch::Nodes& nodes = options.process.nodes;
  const auto refuse = [](const std::string& what) { throw Error(Reason::InvalidSizes, what); };
  const int ranks = static_cast<int>(plan.ranks.size());
  if (nodes.index >= nodes.count)
    refuse("--node-rank " + std::to_string(nodes.index) + " of --nodes " + std::to_string(nodes.count) +
           "; expected 0 to " + std::to_string(nodes.count - 1));
  if (nodes.count == 1) return;
  if (options.process.plan.empty())
    refuse("--nodes " + std::to_string(nodes.count) +
           " without --plan: every node needs the same plan; write one with `plan --json` and pass it to every node");
  if (!launch::can_partition(ranks, nodes.count))
    refuse("the plan's " + std::to_string(ranks) + " ranks cannot be distributed over " + std::to_string(nodes.count) +
           " nodes: every node must run the same number of ranks, and only the last one may run fewer");
  const std::optional<Address> rendezvous = parse_address(options.rendezvous);
  if (!rendezvous)
    refuse("--rendezvous \"" + options.rendezvous +
           "\" is not HOST:PORT; give node 0's name or address and the port it listens on for the others, e.g. "
           "node0:" +
           std::to_string(rendezvous_port));
  nodes.host = rendezvous->host;
  nodes.port = rendezvous->port;
  nodes.plan = base::to_hex(base::sha256(to_json(plan).dump()).substr(0, 8));
}

int serve(ServeOptions& options, const Program& program) {
  options.speculation.check();
  options.drafter.check();
  // the launcher checks the files first, so that an unusable one is a usage error and not a lost rank
  if (!options.api_keys_folder.empty()) server::ApiKeys{options.api_keys_folder};
  if (!options.certificate.empty()) server::Tls(options.certificate, options.key);
  read_adapters(options);
  const Setup setup = prepare(options, options.process.plan_file());
  models::Model::check(setup.model);
  if (setup.adapters.slots > 0) check_takes_adapters(setup.model);
  read_nodes(options, setup.plan);
  if (!options.process.is_rank()) return launch_group(options, setup, program);
  engine::RankGroupConfig model = setup.group(setup.plan.kv_blocks);
  const int64_t concurrency = per_dp_rank(options.max_concurrency, setup.plan.data);
  if (model.kv_blocks > 0)
    model.max_kv_blocks =
        std::max(model.kv_blocks, concurrency * blocks_per_sequence(setup.model.metadata, setup.plan.sequence_length));
  std::optional<engine::Speculation> drafter;
  if (setup.drafter) {
    model.load_beside = [&](at::Device device, const std::function<void(int64_t)>& progress) {
      // a plan that was made without the drafter does not know of it
      const PlannedDraft planned = setup.plan.draft.value_or(
          planned_draft(*setup.model.metadata.draft, setup.plan.sequence_length, options.max_concurrency));
      drafter = load_drafter(*setup.drafter, setup.model, setup.plan.sequence_length, planned.kv_blocks, device,
                             setup.graphs, progress);
    };
  }
  return run_rank(options.process, model,
                  [&](engine::RankGroup& group) { return lead(options, setup, std::move(drafter), group); });
}

}  // namespace

void add_serve(CLI::App& app, Program& program) {
  auto* subcommand = app.add_subcommand(subcommand::serve, "Serves the model over HTTP, one process per rank");
  auto options = std::make_shared<ServeOptions>();
  options->add_to(*subcommand);
  options->process.add_to(*subcommand);
  options->drafter.add_to(*subcommand);
  options->speculation.add_to(*subcommand);
  subcommand->add_option("--host", options->host, "Address to listen on")->capture_default_str();
  subcommand->add_option(flag::port.name, options->port, "Port of the API")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  subcommand
      ->add_option(flag::admin_port.name, options->admin_port,
                   "Admin port: /live, /ready, /status, /metrics and /memory")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  subcommand->add_option(flag::api_keys_dir.name, options->api_keys_folder,
                         "Folder with one API key per file, such as a mounted Secret; requests must send one as "
                         "\"Authorization: Bearer KEY\". Changed files are reloaded");
  auto* certificate = subcommand->add_option(
      flag::tls_cert.name, options->certificate,
      "PEM file with the certificate and its chain, for serving the API over TLS; a changed file is reloaded");
  auto* key =
      subcommand->add_option(flag::tls_key.name, options->key, "PEM file with the private key of the certificate");
  certificate->needs(key);
  key->needs(certificate);
  subcommand
      ->add_option(flag::served_model_name.name, options->names,
                   "Model name in the API; repeat it for several, of which the first stands in replies (default: the "
                   "folder's name)")
      ->allow_extra_args(false);
  subcommand
      ->add_option(
          flag::adapter.name, options->named_adapters,
          "NAME=FOLDER: a LoRA adapter (PEFT) that requests choose by the model name NAME; repeat it for several")
      ->allow_extra_args(false);
  subcommand->add_option(
      "--adapter-updates", options->adapter_updates,
      "Folder below which POST /v1/load_lora_adapter may load adapters while the server runs (default: "
      "no such route)");
  subcommand
      ->add_option(
          "--max-adapters", options->max_adapters,
          "Adapters for which memory is kept (default: as many as are given; with --adapter-updates at least 8)")
      ->check(CLI::Range(1, 1024));
  subcommand
      ->add_option("--max-adapter-rank", options->max_adapter_rank,
                   "Largest rank of an adapter for which memory is kept (default: that of the given ones; with "
                   "--adapter-updates 16)")
      ->check(CLI::Range(1, 1024));
  subcommand
      ->add_option("--metrics-names", options->metrics_names,
                   "Names of the metrics that vLLM has too: own (parallelmodel_*), vllm (vllm:*) or both")
      ->capture_default_str()
      ->check(CLI::IsMember({"own", "vllm", "both"}));
  subcommand->add_flag("--no-page", options->no_page, "Answer / with JSON to browsers too, not with a page");
  subcommand->add_flag("--strict-requests", options->strict_requests,
                       "Refuse the unknown fields of requests in the forms of OpenAI and Anthropic instead of ignoring "
                       "them");
  subcommand
      ->add_option("--media-folder", options->media_folder,
                   "Folder whose files requests may name as images, by file: URLs (default: none)")
      ->check(CLI::ExistingDirectory);
  subcommand
      ->add_option("--media-host", options->media_hosts,
                   "Host (HOST or HOST:PORT) from which requests may name images by http and https URLs; may be "
                   "repeated (default: none)")
      ->delimiter(',')
      ->check([](const std::string& host) {
        try {
          const MediaHosts checked({host});
          return std::string();
        } catch (const Error& error) {
          return std::string(error.what());
        }
      });
  subcommand->add_option(flag::max_queue.name, options->max_queue, "Maximum requests in the waiting queue")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  subcommand
      ->add_option(flag::drain.name, options->drain_seconds,
                   "Maximum seconds for running requests to finish after SIGTERM")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  subcommand
      ->add_option(flag::replica_generation.name, options->process.nodes.replica_generation,
                   "Generation of the replica, set by the controller")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  subcommand
      ->add_option(flag::nodes.name, options->process.nodes.count,
                   "Number of nodes of the replica; ranks are assigned to nodes in order, as equally as possible")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  subcommand
      ->add_option(flag::node_rank.name, options->process.nodes.index,
                   "Index of this node; node 0 runs rank 0 and the API")
      ->capture_default_str()
      ->check(CLI::Range(0, 1023));
  subcommand->add_option(flag::rendezvous.name, options->rendezvous,
                         "HOST:PORT where node 0 listens for the other nodes");
  subcommand->callback([options, &program] { program.code = serve(*options, program); });
}

}  // namespace pm::cli
