#pragma once

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "troupe/runtime/hosts/launch_environment.hpp"

namespace troupe::internal::test {

/// *base* with the variables of *more* instead; an empty one is unset.
inline environment_map with(environment_map base, const environment_map& more) {
  for (const auto& [name, value] : more)
    base[name] = value;
  return base;
}

inline const environment_map job{
  {"SLURM_JOB_ID", "4711"},     {"SLURM_JOB_NODELIST", "n[1-4]"},
  {"SLURM_NODELIST", "n[1-4]"}, {"SLURM_JOB_NUM_NODES", "4"},
  {"SLURM_NNODES", "4"},        {"SLURM_TASKS_PER_NODE", "2(x3),1"}};

inline const environment_map batch_script =
  with(job, {{"SLURM_PROCID", "0"}, {"SLURMD_NODENAME", "n1"}});

inline environment_map task(int number, std::string node) {
  return with(job, {{"SLURM_STEP_ID", "0"},
                    {"SLURM_PROCID", std::to_string(number)},
                    {"SLURM_LOCALID", "0"},
                    {"SLURM_STEP_NODELIST", "n[2-4]"},
                    {"SLURM_STEP_NUM_NODES", "3"},
                    {"SLURM_STEP_NUM_TASKS", "3"},
                    {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"},
                    {"SLURM_NNODES", "3"},
                    {"SLURM_TASKS_PER_NODE", "1(x3)"},
                    {"SLURMD_NODENAME", std::move(node)}});
}

inline launch_options on(std::string name) {
  return {.own_names = {"localhost", std::move(name)}};
}

inline launch_options with_hosts(std::string hosts, std::string own) {
  return {.hosts = std::move(hosts),
          .own_names = {"localhost", std::move(own), "10.0.0.1"}};
}

inline launch_options as_agent(std::string name) {
  return {.node_agent = true, .own_names = {std::move(name)}};
}

inline launch_environment found(const environment_map& variables,
                                const launch_options& options = on("x")) {
  auto result = find_launch_environment(variables, options);
  EXPECT_TRUE(result) << result.error().message;
  return result.value_or(launch_environment{});
}

inline std::string mistake_in(const environment_map& variables,
                              const launch_options& options = on("x")) {
  auto result = find_launch_environment(variables, options);
  if (result)
    return "taken: " + result->found;
  EXPECT_EQ(result.error().code, ec::invalid_config);
  return result.error().message;
}

inline std::vector<std::string> node_names(const launch_environment& x) {
  std::vector<std::string> result;
  for (const auto& host : x.hosts)
    result.push_back(host.name);
  return result;
}

} // namespace troupe::internal::test
