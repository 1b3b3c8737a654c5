// SPDX-License-Identifier: Apache-2.0
// The entry point of parallelmodel-worker, one binary with a subcommand for each use.
#include <algorithm>
#include <csignal>
#include <iostream>
#include <span>

#include "worker/base/error.h"
#include "worker/cli/hub_options.h"
#include "worker/cli/options.h"
#include "worker/ops/arena.h"
#include "worker/ops/cpu/machine.h"

#include "base/log.h"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  pm::base::start_logging(argv[0]);
  pm::ops::count_allocations();
  CLI::App app("Serves Hugging Face transformers models sharded over several devices");
  app.set_version_flag("--version", PM_VERSION);
  app.require_subcommand(1);
  pm::cli::Program program{argc, argv};
  pm::cli::add_serve(app, program);
  pm::cli::add_generate(app, program);
  pm::cli::add_forward(app, program);
  pm::cli::add_bench(app, program);
  pm::cli::add_convert(app, program);
  pm::cli::add_fetch(app, program);
  pm::cli::add_inspect(app, program);
  pm::cli::add_plan(app, program);
  pm::cli::add_families(app, program);
  // The launcher says it, and not each of its ranks again, which it starts with --segment.
  const std::span arguments(argv, static_cast<size_t>(argc));
  if (const std::string warning = pm::ops::machine_warning();
      !warning.empty() && std::ranges::find(arguments, std::string_view("--segment")) == arguments.end())
    LOG(WARNING) << warning;
  try {
    app.parse(argc, argv);
    return program.code;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : pm::exit_code(pm::ErrorKind::Usage);
  } catch (const pm::Error& error) {
    std::cerr << error.reason << ": " << error.what() << "\n";
    return pm::exit_code(error.kind);
  } catch (const std::exception& error) {
    std::cerr << pm::Reason::InternalError << ": " << error.what() << "\n";
    return pm::exit_code(pm::ErrorKind::Internal);
  }
}
