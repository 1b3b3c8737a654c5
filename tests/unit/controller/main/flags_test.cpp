// SPDX-License-Identifier: Apache-2.0
#include "controller/flags.h"

#include <gtest/gtest.h>

using namespace pm;

TEST(Flags, BothSpellingsOfAValueWork) {
  const Flags flags =
      parse_flags({"--namespace", "n", "--worker-image=registry:5000/worker@sha256:a=b", "--workers=8", "--no-nodes"});
  EXPECT_EQ(flags.ns, "n");
  EXPECT_EQ(flags.worker_image, "registry:5000/worker@sha256:a=b");
  EXPECT_EQ(flags.workers, 8);
  EXPECT_FALSE(flags.read_nodes);
  EXPECT_EQ(flags.metrics_port, 8080);
}

TEST(Flags, MistakesNameTheArgument) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--bogus"},
                                                    {"word"},
                                                    {"--workers", "0"},
                                                    {"--workers", "x"},
                                                    {"--metrics-port=70000"},
                                                    {"--namespace"},
                                                    {"--no-nodes=true"},
                                                    {"-h"},
                                                    {""}}) {
    EXPECT_THROW(parse_flags(arguments), UsageError) << arguments[0];
  }
}

TEST(Flags, TheHelpNamesEveryFlag) {
  for (const char* flag :
       {"--kubeconfig", "--namespace", "--worker-image", "--worker-cuda-image", "--metrics-port", "--probe-port",
        "--workers", "--leader-elect", "--lease-namespace", "--lease-name", "--no-nodes", "--version", "--help"}) {
    EXPECT_NE(usage().find(flag), std::string::npos) << flag;
  }
}
