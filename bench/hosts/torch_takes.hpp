#pragma once

#include <string>

#include "bench/figure.hpp"
#include "bench/workplace.hpp"

namespace troupe::internal::bench {

figure all_reduce_hosts(workplace& place);
figure all_reduce_hosts_wire(workplace& place);
figure all_reduce_hosts_tls(workplace& place);
figure all_reduce_hosts_fast(workplace& place);
figure all_reduce_hosts_fast_tls(workplace& place);

/// Both ranks of host number *host*, from 0; returns an exit code.
int run_all_reduce_host(const std::string& folder, int host);

figure host_loss_smaller_detection(workplace& place);
figure host_loss_smaller_attempt(workplace& place);
figure host_loss_smaller_ranks(workplace& place);
figure host_loss_smaller(workplace& place);

/// The driver of these, in the folder that the measurement made.
int host_loss_smaller_driver(const std::string& folder);

figure start_hosts_4(workplace& place);

/// The driver of `start_hosts_4`; and one of the four bare programs. Both write
/// to the file *times*.
int start_hosts_driver(const std::string& folder);
int start_bare_host(const std::string& folder, int host);

} // namespace troupe::internal::bench
