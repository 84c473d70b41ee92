#pragma once

#include <string>

#include "bench/figure.hpp"
#include "bench/workplace.hpp"

namespace troupe::internal::bench {

/// The measurements on several hosts, and what the driver of each does, in the
/// folder that the measurement made.
figure report_hosts(workplace& place);
void report_hosts_driver(const std::string& folder);

figure host_loss_detection(workplace& place);
figure host_loss_restart(workplace& place);
void host_loss_driver(const std::string& folder);

figure barrier_256(workplace& place);
figure barrier_256_memory(workplace& place);
void barriers_driver(const std::string& folder);

} // namespace troupe::internal::bench
