// Which process holds which block: the arithmetic of meshes and shardings (the same as partitioner/mesh.py's).
"use strict";

view.mesh = {
  // The coordinate of a device along each prime part of the mesh's axes.
  coordinates(mesh, device) {
    if (!mesh.positions && mesh.order) {
      mesh.positions = [];
      mesh.order.forEach((at, position) => (mesh.positions[at] = position));
    }
    let rest = mesh.positions ? mesh.positions[device] : device;
    const found = [];
    for (let part = mesh.parts.length - 1; part >= 0; part--) {
      found[part] = rest % mesh.parts[part][2];
      rest = Math.floor(rest / mesh.parts[part][2]);
    }
    return found;
  },
  size: (mesh) => mesh.parts.reduce((product, part) => product * part[2], 1),
  // [axis, coordinate] of a device for each named axis.
  named(mesh, device) {
    const at = view.mesh.coordinates(mesh, device);
    return mesh.axes.map(([name]) => [
      name,
      mesh.parts.reduce((sum, part, index) => (part[0] === name ? sum * part[2] + at[index] : sum), 0),
    ]);
  },
  count: (mesh, axes) => axes.reduce((product, axis) => product * mesh.parts[axis][2], 1),
  block(mesh, axes, device) {
    const at = view.mesh.coordinates(mesh, device);
    return axes.reduce((index, axis) => index * mesh.parts[axis][2] + at[axis], 0);
  },
};

view.sharding = {
  // [start, stop] in each dimension of what process `rank` holds of a tensor of `shape`, padding left out.
  part(data, number, shape, rank) {
    const sharding = data.shardings[number];
    const mesh = data.meshes[sharding.mesh];
    const device = rank % view.mesh.size(mesh);
    return shape.map((size, dimension) => {
      const axes = sharding.dims[dimension];
      const block = Math.ceil(size / view.mesh.count(mesh, axes));
      const start = view.mesh.block(mesh, axes, device) * block;
      return [Math.min(start, size), Math.min(start + block, size)];
    });
  },
  counts(data, number) {
    const sharding = data.shardings[number];
    return sharding.dims.map((axes) => view.mesh.count(data.meshes[sharding.mesh], axes));
  },
  local: (data, number, shape) => view.sharding.counts(data, number).map((count, at) => Math.ceil(shape[at] / count)),
  // The ranks that hold each block, by the block's indices joined with commas.
  owners(data, number) {
    const sharding = data.shardings[number];
    sharding.owners ||= new Map();
    if (!sharding.owners.size) {
      const mesh = data.meshes[sharding.mesh];
      const size = view.mesh.size(mesh);
      for (let rank = 0; rank < data.grid.size; rank++) {
        const key = sharding.dims.map((axes) => view.mesh.block(mesh, axes, rank % size)).join();
        if (!sharding.owners.has(key)) sharding.owners.set(key, []);
        sharding.owners.get(key).push(rank);
      }
    }
    return sharding.owners;
  },
};

// `0-3, 8`: ranks in runs; `0, 2, … 14` of regular steps.
view.ranks = (ranks, most = 12) => {
  const step = ranks.length > 3 ? ranks[1] - ranks[0] : 1;
  if (step > 1 && ranks.every((rank, at) => rank === ranks[0] + at * step))
    return `${ranks[0]}, ${ranks[1]}, … ${ranks[ranks.length - 1]}`;
  const runs = [];
  for (const rank of ranks) {
    const last = runs[runs.length - 1];
    if (last && rank === last[1] + 1) last[1] = rank;
    else runs.push([rank, rank]);
  }
  const told = runs.slice(0, most).map(([low, high]) => (low === high ? `${low}` : `${low}-${high}`));
  return told.join(", ") + (runs.length > most ? `, … ${ranks.length} in all` : "");
};
