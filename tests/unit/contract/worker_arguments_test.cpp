// SPDX-License-Identifier: Apache-2.0
// Tests how arguments of the worker are written, and addresses read.
#include "contract/worker_arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pm {
namespace {

using testing::ElementsAre;

TEST(WorkerArguments, StandInTheOrderOfTheCallsWithTheirValuesAsText) {
  WorkerArguments arguments(subcommand::serve);
  arguments.add(flag::model, "/model").add(flag::nodes, 2).add(flag::drain, std::chrono::seconds(60));
  arguments.add(flag::rendezvous, {"m-0-0-1.m-ranks.ns.svc", 29500}).add("--no-graphs");
  EXPECT_THAT(arguments.list(), ElementsAre("serve", "--model", "/model", "--nodes", "2", "--drain-seconds", "60",
                                            "--rendezvous", "m-0-0-1.m-ranks.ns.svc:29500", "--no-graphs"));
}

TEST(WorkerArguments, AnAddressIsReadAsItIsWritten) {
  for (const Address& address : {Address{"node0", 29500}, Address{"10.0.0.1", 1}, Address{"fd00::1", 65535}})
    EXPECT_EQ(parse_address(to_text(address)), address) << to_text(address);
  EXPECT_EQ(to_text({"fd00::1", 29500}), "[fd00::1]:29500");
  EXPECT_EQ(parse_address("fd00::1:29500"), (Address{"fd00::1", 29500})) << "without brackets too";
}

TEST(WorkerArguments, WhatIsNoAddressIsRefused) {
  for (const char* text : {"", ":", "node0", "node0:", ":29500", "node0:0", "node0:65536", "node0:-1", "node0:+1",
                           "node0:1x", "node0:000029500", "node0: 1"})
    EXPECT_EQ(parse_address(text), std::nullopt) << text;
}

}  // namespace
}  // namespace pm
