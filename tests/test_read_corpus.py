"""Every topology file of the corpus is read or refused as its index says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
from read_corpus import CORPUS, FOLDERS, Outcome, corpus_files, outcome

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="../shared/corpus is absent")

READ = {
    # smi_topo
    "2gpu_phb_nonvlink.txt": 2,
    "a100_4gpu_3nic_cgroup.txt": 4,
    "a100_4gpu_nv4_2nic_header_shifted.txt": 4,
    "a100_4gpu_nv4_commented.txt": 4,
    "a100_8gpu_nv12_pairs_2sockets.txt": 8,
    "a100_pcie_4gpu_oddeven_cores.txt": 4,
    "a6000_3gpu_nv4_pair_plus_one.txt": 3,
    "amd_4gpu_pcie_weight52_hops3.txt": 4,
    "amd_8gpu_xgmi_lowpower_warning.txt": 8,
    "amd_mi210_4gpu_xgmi.txt": 4,
    "dgx1v_4xmlx5_niccols_unsorted.txt": 8,
    "dgx_a100_8gpu_12mlx5.txt": 8,
    "dgx_h100_8gpu_12nic_rows_cut.txt": 8,
    "h100_8gpu_6nic_empty_affinity.txt": 8,
    "h100_8gpu_narrow_columns.txt": 8,
    "hgx_nv18_8gpu_12nic_good.txt": 8,
    "hgx_nv18_8gpu_12nic_lost_tab.txt": 8,
    "pcie_6gpu_uneven_sockets.txt": 6,
    "pcie_8gpu_all_sys.txt": 8,
    "pcie_8gpu_node_sys.txt": 8,
    "power9_ac922_4gpu_4nic.txt": 4,
    "rtx5090_2gpu_phb_new.txt": 2,
    "rtx_2gpu_nv2_bridge_new.txt": 2,
    "t4_4gpu_1plus3_sockets.txt": 4,
    "titanv_8gpu_pcie_two_sockets.txt": 8,
    "v100_sxm2_8gpu_1nic_spaces.txt": 8,
    "v100_sxm2_8gpu_container_legend_old.txt": 8,
    "v100_sxm2_8gpu_indented4.txt": 8,
    # nccl_topo
    "aws_p4d_24xl_8xA100_4efa.xml": 8,
    "azure_ncv4-topo.xml": 4,
    "azure_ndv2-topo.xml": 8,
    "azure_ndv4-topo.xml": 8,
    "azure_ndv5-topo.xml": 8,
    "oci_A100_topo-flattened.xml": 8,
    "oci_H100-topology-kubernetes.xml": 8,
    "oci_H100-topology.xml": 8,
    "rccl_topo_16p1h.xml": 16,
    "rccl_topo_3p_pcie.xml": 3,
    "rccl_topo_3p_pcie_1.xml": 3,
    "rccl_topo_4p1h.xml": 4,
    "rccl_topo_4p2h_2nic.xml": 8,
    "rccl_topo_8p_90a.xml": 8,
    "rccl_topo_8p_940.xml": 8,
    "rccl_topo_8p_940vm.xml": 8,
    "rccl_topo_8p_pcie_2nic.xml": 8,
    "rccl_topo_8p_rome_4nics.xml": 8,
    "rccl_topo_8p_ts1_n4.xml": 8,
    "rccl_topo_collnet_n4.xml": 8,
    "superbench_ndv4-topo.xml": 8,
    # other
    "astrasim_htsim_8nodes.topo": 8,
    "astrasim_net_HGX-H100-validated.yml": 8,
    "astrasim_net_Ring_8npus.yml": 8,
    "ibnetdiscover_full_2switch.txt": 2,
    "ibnetdiscover_full_edr_leaf.txt": 7,
    "ibnetdiscover_full_ndr_qm9700_redacted.txt": 5,
    "ibnetdiscover_p_test2.out": 1,
    "mi300x_ib_bw_16x16_MBps.csv": 16,
    "ns3_topo_dgx1v_user_no_switch.txt": 8,
    "ns3_topo_fattree_k4.txt": 16,
    "ns3_topo_star_n8.txt": 8,
    "simai_topo_6gpu_nonvlink_asymmetric.txt": 6,
    "simai_topo_hpn_8gpu_linkcount_mismatch.txt": 8,
    "slurm_topology_block.conf": 32,
    "slurm_topology_tree_case3.conf": 400,
    "taccl_fork_topo-mesh-any-3x3x3.json": 27,
    "taccl_fork_topo-mi300x.json": 8,
    "taccl_fork_topo-torus2d-4x4.json": 16,
    "taccl_fork_topo_akmu-A-GPU2-P2P-0-GDRLEVEL-SYS-GDRREAD-0-1MB.json": 2,
    "taccl_fork_topo_akmu-A-GPU4-P2P-1-GDRLEVEL-SYS-GDRREAD-1-1MB.json": 4,
    "taccl_fork_topo_akmu-B-GPU1-P2P-0-GDRLEVEL-LOC-GDRREAD-0-1MB.json": 1,
    "taccl_fork_topo_akmu-D-GPU4-P2P-0-GDRLEVEL-LOC-GDRREAD-0-1MB.json": 4,
    "taccl_topo-dgx2-1KB.json": 16,
    "taccl_topo-dgx2-1MB.json": 16,
    "taccl_topo-ndv2-1KB.json": 8,
    "taccl_topo-ndv2-1MB.json": 8,
    "taccl_topo-ndv2-32KB.json": 8,
    "teccl_amd_sample.json": 16,
    "teccl_dgx2_sample.json": 32,
    "teccl_ndv2_input.json": 16,
    "teccl_ndv2_sample.json": 16,
    "topograph_slurm_block.conf": 96,
    "topograph_slurm_tree.conf": 96,
}
"""Ranks of every file that is read."""

REFUSED = {
    "dgx1v_topo_mp_pcie_only_view.txt": ":3: the paste says -mp: this view hides NVLink",
    "dgx2_16gpu_10nic_truncated.txt": ":7: the header names 16 GPUs, the rows of GPU5",
    "dgx_a100_8gpu_10nic_truncated.txt": ":9: row GPU6 is cut: 1 of 18 cells",
    "gb200_4gpu_nv18_6nic_truncated.txt": ":5: row GPU3 is cut: 5 of 10 cells",
    "h100_8gpu_4computenic_truncated.txt": ":9: row GPU7 is cut: 4 of 14 cells",
    "hgx_8gpu_9nic_uneven_numa_truncated.txt": ":8: row GPU6 is cut: 7 of 17 cells",
    "hopper_8gpu_nvlink_down_all_sys_truncated.txt": "fabric manager may be down",
    "pcie_8gpu_mlx4_truncated.txt": ":7: the header names 8 GPUs, the rows of GPU5, GPU6, GPU7",
    "amd_mi300_tpx_broken_matrix.txt": ":3: rocm-smi failed here",
    "a100_pcie_nvlink_pairs_nccl762_truncated.xml": ":18: not whole XML",
    "v100_dgx1_4gpu_nccl671_truncated.xml": ":16: not whole XML",
    "aws_g5_48xl_8xA10G_pcie.xml": ":14: PCI device 0000:00:16.0 has no class",
    "slurm_topology_tree_case6.conf": "no cable joins its 3 parts",
    "ibnetdiscover_p_test.out": "no cable joins its 2 parts",
    "ibnetdiscover_p_test3.out": ":1: no cable in it",
    "ufm_ndt_bad_garbage.csv": ":1: in no known topology format",
    "ufm_ndt_bad_incorrect_columns.csv": ":1: column StartPort missing",
    "ufm_ndt_switch_to_host.csv": "no cable joins its 4 parts",
    "ufm_ndt_switch_to_switch.csv": "names 8 switches but no host",
    "ufm_ndt_full_columns.csv": "names 11 switches but no host",
    "mi300x_ib_latency_16x16_us.csv": "these are latencies only",
    "astrasim_ns3_logical_16nodes_2D.json": ":2: this is ASTRA-sim's logical topology",
    "astrasim_remote_memory_none.json": "remote memory settings",
    "ibstatus_200g.txt": "the state of one NIC",
    "sccl_config_size_ranges.xml": "an SCCL_CONFIG",
    "rccl_debug_mi250x_2x16.log": "an NCCL_DEBUG log",
    "teccl_ndv2_allgather_1KB_schedule_head.json": "a TE-CCL schedule",
    "taccl_solution_alltoall_2x4_mi300x.sccl.json": "a TACCL or SCCL solution",
    "nccl_tests_json_alltoall.json": "nccl-tests results",
    "simai_SimAI.conf": "an ns-3 configuration",
    "simai_busbw.yaml": "SimAI's table of bus bandwidths",
    "simai_microAllReduce.txt": "workload",
}
"""Part of the first reason of files that are refused."""

KINDS = {
    "taccl_sk": "a TACCL sketch",
    "taccl_fork_sk": "a TACCL sketch",
    "taccl_xml": "an MSCCL program",
    "astrasim_custom": "an MSCCL program",
    "astrasim_sys": "ASTRA-sim's system settings",
    "chakra_": "a binary file such as a Chakra trace",
    "mscclpp_mscclpp": "a list of MSCCL++ tests",
    "mscclpp_": "an MSCCL++ execution plan",
    "deeppool_": "a DeepPool layer profile",
    "nccl_debug_": "an NCCL_DEBUG log",
    "nccl_tuner": "an NCCL tuner table",
    "rccl_or_ncclx": "an NCCL tuner table",
    "simai_": "SimAI's table of efficiencies",
}
"""The same by the start of a name."""


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return [outcome(path) for path in corpus_files([CORPUS / name for name in FOLDERS])]


def test_every_file_has_the_outcome_of_its_index(outcomes: list[Outcome]) -> None:
    wrong = []
    for item in outcomes:
        name = item.file.name
        if name in READ:
            expected = ("read", f"{READ[name]} ranks,")
        else:
            starts = [text for start, text in KINDS.items() if name.startswith(start)]
            expected = ("refused", REFUSED.get(name) or (starts or ["?"])[0])
        if item.verdict != expected[0] or expected[1] not in item.detail:
            wrong.append(f"{name}: {item.verdict} {item.detail}")
    assert not wrong, "\n".join(wrong)
    assert {o.file.name for o in outcomes} >= READ.keys() | REFUSED.keys()


def test_nothing_takes_five_seconds(outcomes: list[Outcome]) -> None:
    # The slowest takes 0.05 s.
    assert max(item.seconds for item in outcomes) < 5


def test_the_sister_nodes_of_one_cluster_are_equal() -> None:
    good, lost = (
        outcome(CORPUS / "smi_topo" / f"hgx_nv18_8gpu_12nic_{name}.txt")
        for name in ("good", "lost_tab")
    )
    assert good.detail == lost.detail
