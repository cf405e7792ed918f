// Repeated measurements, told by their middle and their spread.
#pragma once

#include <string>
#include <vector>

namespace skippy::bench {

// The value below which `part` of the samples lie (0..1), interpolated; 0 without samples.
double Quantile(std::vector<double> samples, double part);
inline double Median(std::vector<double> samples) { return Quantile(std::move(samples), 0.5); }

// Rows of cells as lines; the first column to the left, the others to the right.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace skippy::bench
